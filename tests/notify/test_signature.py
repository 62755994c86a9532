"""A receiver can tell our messages from others; the page that shows how is run as it stands."""

import base64
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.notify.signature import BadSignature, Secret, sign, verify
from tests.support.stand_ins import path_with_openssl

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()
KEY = bytes(range(32))
TEXT = f"whsec_{base64.b64encode(KEY).decode()}"
SECRET = Secret.parse(TEXT)
OTHER = Secret(b"another key of 24 bytes.")
NOW = 1_700_000_000
BODY = b'{"type": "TaskCompleted"}'


def message(*secrets: Secret, id: str = "msg_1", timestamp: int = NOW) -> dict[str, str]:
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secrets or (SECRET,), id, timestamp, BODY),
    }


def refused(headers: dict[str, str], body: bytes = BODY, now: float = NOW) -> str:
    with pytest.raises(BadSignature) as caught:
        verify(SECRET, headers, body, now=now)
    return str(caught.value)


def test_the_scheme_is_that_of_standard_webhooks() -> None:
    """The example of the specification."""
    secret = Secret.parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = sign([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_we_sign_verifies() -> None:
    verify(SECRET, message(), BODY, now=NOW)
    verify(TEXT, {name.upper(): value for name, value in message().items()}, BODY, now=NOW)


def test_the_clock_is_the_systems_unless_given() -> None:
    with pytest.raises(BadSignature, match="300 s away"):
        verify(SECRET, message(), BODY)


def test_while_a_secret_changes_both_verify() -> None:
    headers = message(OTHER, SECRET)
    assert len(headers["webhook-signature"].split(" ")) == 2
    verify(SECRET, headers, BODY, now=NOW)
    verify(OTHER, headers, BODY, now=NOW)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-id", "msg_2"),
        ("webhook-timestamp", str(NOW + 1)),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "v1"),
        ("webhook-signature", "v2," + message()["webhook-signature"][3:]),
        ("webhook-signature", message()["webhook-signature"][3:]),
        ("webhook-signature", message()["webhook-signature"][:-1]),
        ("webhook-signature", "v1,é\udcff"),
    ],
)
def test_a_message_that_was_changed_is_refused(name: str, value: str) -> None:
    assert "with this secret" in refused(message() | {name: value})


def test_another_body_or_another_secret_is_refused() -> None:
    assert "with this secret" in refused(message(), BODY + b" ")
    assert "with this secret" in refused(message(OTHER))


@pytest.mark.parametrize("away_seconds", [-301, 301])
def test_an_old_or_early_message_is_refused(away_seconds: int) -> None:
    assert "300 s away" in refused(message(), now=NOW + away_seconds)
    verify(SECRET, message(), BODY, now=NOW + away_seconds, tolerance_seconds=301)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(f"webhook-{part}", "") for part in ("id", "timestamp", "signature")],
        *[("webhook-timestamp", value) for value in ("soon", "1e9", "-1", "9" * 5000, "nan")],
        ("webhook-id", "msg_1.1"),
    ],
)
def test_a_header_that_is_missing_or_wrong_is_refused(name: str, value: str) -> None:
    assert "missing or wrong" in refused(message() | {name: value})


@pytest.mark.parametrize("id", ["", "a.b", "a b", "ä", "a\nb", "x" * 257])
def test_an_id_that_could_shift_what_is_signed_is_not_signed(id: str) -> None:
    with pytest.raises(InvalidInput):
        sign([SECRET], id, NOW, BODY)


def test_nothing_is_sent_unsigned() -> None:
    with pytest.raises(InvalidInput, match="one secret at least"):
        sign([], "msg_1", NOW, BODY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        TEXT.removeprefix("whsec_"),
        TEXT[:-1],
        TEXT[:10] + "!" + TEXT[10:],
        "whsec_" + "!" * 44,
        "whsec_" + "ä" * 44,
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
    ],
)
def test_a_bad_secret_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Secret.parse(text)
    assert caught.value.__cause__ is None
    assert len(text) < 10 or text[6:] not in str(caught.value)


def test_a_secret_does_not_show_itself() -> None:
    shown = f"{SECRET!r} {SECRET} {[SECRET]}"
    assert "***" in shown
    assert str(KEY) not in shown
    assert TEXT[6:] not in shown
    with pytest.raises(TypeError):
        msgspec.json.encode(SECRET)


def blocks(language: str) -> list[str]:
    section = PAGE.split("\n## What is sent\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def test_the_page_shows_two_programs_and_a_shell_script() -> None:
    assert [len(blocks("python")), len(blocks("sh"))] == [2, 1]


CALLS = """
def taken(headers, body):
    try:
        receive(headers, body)
    except ValueError:
        return False
    return True

print(taken(HEADERS, BODY), taken(HEADERS, BODY + b" "), taken({}, BODY))
print(taken(dict(HEADERS) | {"webhook-timestamp": "1"}, BODY))
"""


@pytest.mark.parametrize("number", [0, 1])
def test_the_pages_programs_verify(number: int, tmp_path: Path) -> None:
    program = blocks("python")[number]
    assert "WEBHOOK_SECRET" in program
    headers = message(OTHER, SECRET, timestamp=int(time.time()))
    given = f"HEADERS, BODY = {headers!r}, {BODY!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", program + given + CALLS],
        env=os.environ | {"WEBHOOK_SECRET": TEXT},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["True", "False", "False", "False"], done.stderr


@pytest.mark.parametrize("stand_in", [False, True])
def test_the_pages_shell_script_prints_the_signature(tmp_path: Path, stand_in: bool) -> None:
    """With the machine's openssl, if it has one, and with the stand-in, which must be as good."""
    (tmp_path / "body.json").write_bytes(BODY)
    path = path_with_openssl(tmp_path, stand_in=stand_in)
    given = {"WEBHOOK_SECRET": TEXT, "ID": "msg_1", "TIMESTAMP": str(NOW), "PATH": path}
    done = subprocess.run(
        ["sh", "-eu", "-c", blocks("sh")[0]],
        cwd=tmp_path,
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == message()["webhook-signature"], done.stderr
