"""`holdfast tokens`: made once, kept as hashes, revoked."""

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.commands import tokens as cli_tokens
from holdfast.cli.exit_codes import Exit
from holdfast.cli.root import cli
from holdfast.domain.errors import InvalidSetting
from holdfast.server.auth import tokens as tk


class Hand:
    def __init__(self, path: Path) -> None:
        self.path = path

    def cli(self, *args: str) -> Result:
        env = {"HOLDFAST_TOKENS": str(self.path), "COLUMNS": "80", "NO_COLOR": "1"}
        return CliRunner().invoke(cli, ["tokens", *args], env=env)

    def json(self, *args: str) -> Any:
        result = self.cli(*args, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def make(self, name: str, *args: str, role: str = "viewer") -> str:
        result = self.cli("create", name, "--role", role, *args)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(tmp_path / "tokens.json")


def test_a_token_is_printed_once_and_only_its_hash_is_kept(hand: Hand) -> None:
    text = hand.make("ann", role="operator")
    kept = hand.path.read_text()
    secret = text.split("_", 2)[2]
    assert secret not in kept
    [token] = tk.read(hand.path)
    assert (token.name, token.role, token.hash) == ("ann", tk.Role.OPERATOR, tk.hash_text(text))
    assert tk.Tokens([token]).check(text, now=0.0) == token


def test_the_file_is_for_its_owner_alone(hand: Hand) -> None:
    hand.make("ann")
    hand.make("bob")
    assert stat.S_IMODE(hand.path.stat().st_mode) == 0o600
    assert [path.name for path in hand.path.parent.iterdir()] == ["tokens.json"]


def test_tenants_expiry_and_rate_are_kept(hand: Hand) -> None:
    made = hand.json(
        *("create", "ann", "--role", "viewer", "--tenant", "t-1", "--tenant", "t-2"),
        *("--expires", "30d", "--rate", "5"),
    )
    [token] = tk.read(hand.path)
    assert token.tenants == ("t-1", "t-2")
    assert token.expires_at is not None
    assert token.expires_at - token.created_at == pytest.approx(30 * 86_400)
    assert token.rate == 5
    assert made["token"].startswith(f"hf_{token.id}_")
    assert (made["tenants"], made["rate"], made["expired"]) == (["t-1", "t-2"], 5.0, False)


def test_a_list_never_shows_a_secret_or_a_hash(hand: Hand) -> None:
    text = hand.make("ann", "--expires", "0s")
    [token] = tk.read(hand.path)
    for shown in (hand.cli("list").output, json.dumps(hand.json("list"))):
        assert "ann" in shown
        assert "expired" in shown
        assert token.hash not in shown
        assert text.split("_", 2)[2] not in shown
    assert all(len(line) <= 80 for line in hand.cli("list").stdout.splitlines())


@pytest.mark.parametrize("by", ["name", "id"])
def test_a_revoked_token_is_gone_and_the_others_stay(hand: Hand, by: str) -> None:
    hand.make("ann")
    hand.make("bob")
    ann = next(token for token in tk.read(hand.path) if token.name == "ann")
    gone = hand.json("revoke", ann.name if by == "name" else ann.id)
    assert [one["name"] for one in gone["revoked"]] == ["ann"]
    assert [token.name for token in tk.read(hand.path)] == ["bob"]


def test_a_name_is_given_once(hand: Hand) -> None:
    hand.make("ann")
    result = hand.cli("create", "ann", "--role", "admin")
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.strip().endswith("[name-taken]")
    assert len(tk.read(hand.path)) == 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("create", "ann", "--role", "king"), Exit.USAGE),
        (("create", "ann"), Exit.USAGE),
        (("create", "a\nb", "--role", "viewer"), Exit.INVALID),
        (("create", "ann", "--role", "viewer", "--tenant", "a b"), Exit.INVALID),
        (("create", "ann", "--role", "viewer", "--expires", "soon"), Exit.INVALID),
        (("create", "ann", "--role", "viewer", "--rate", "0"), Exit.USAGE),
        (("create", "ann", "--role", "viewer", "--file", "no/where/tokens.json"), Exit.INVALID),
        (("revoke", "nobody"), Exit.INVALID),
        (("list", "--file", "nowhere.json"), Exit.INVALID),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    hand: Hand, args: tuple[str, ...], code: Exit
) -> None:
    assert hand.cli(*args).exit_code == code
    assert not hand.path.exists() or tk.read(hand.path) == ()


def test_without_a_file_it_says_how_to_name_one() -> None:
    result = CliRunner().invoke(cli, ["tokens", "list"])
    assert result.exit_code == Exit.USAGE
    assert "--file or HOLDFAST_TOKENS" in result.stderr


def test_two_who_make_tokens_at_once_both_keep_theirs(hand: Hand) -> None:
    makers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast", "tokens", "create", f"ann-{number}"),
                *("--role", "viewer", "--file", str(hand.path)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(4)
    ]
    assert [maker.wait(120) for maker in makers] == [0, 0, 0, 0]
    assert len(tk.read(hand.path)) == 4


def test_who_changes_the_file_waits_for_who_does_so_already(hand: Hand) -> None:
    ann, bob = tk.make("ann", tk.Role.VIEWER)[0], tk.make("bob", tk.Role.VIEWER)[0]
    entered = threading.Event()

    def second() -> None:
        with cli_tokens._change_file(hand.path) as found:
            entered.set()
            found.append(bob)

    other = threading.Thread(target=second)
    with cli_tokens._change_file(hand.path) as found:
        other.start()
        assert not entered.wait(0.2)
        found.append(ann)
    other.join(60)
    assert tk.read(hand.path) == (ann, bob)


# -- the tokens themselves


def test_no_part_of_a_token_is_enough() -> None:
    token, text = tk.make("ann", tk.Role.ADMIN)
    known = tk.Tokens([token])
    head, _, secret = text.rpartition("_")
    wrong = [
        text[:-1],
        text + "x",
        head,
        f"{head}_",
        secret,
        f"hf__{secret}",
        "",
        "_",
        "__",
        "x" * 500,
    ]
    assert [known.check(one, now=0.0) for one in wrong] == [None] * len(wrong)
    assert known.check(text, now=0.0) is token


def test_an_expired_token_is_worth_nothing() -> None:
    token, text = tk.make("ann", tk.Role.ADMIN, now=10.0, expires_at=20.0)
    known = tk.Tokens([token])
    assert known.check(text, now=19.9) is token
    assert known.check(text, now=20.0) is None


def test_a_file_that_changes_counts_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    ann, text = tk.make("ann", tk.Role.ADMIN)
    tk.write(path, [ann])
    file = tk.TokenFile(path)
    assert file.current(steady=0.0).check(text, now=0.0) == ann
    tk.write(path, [])
    assert file.current(steady=0.5).check(text, now=0.0) == ann  # not looked at yet
    assert file.current(steady=1.5).check(text, now=0.0) is None


@pytest.mark.parametrize("broken", [b"{", b"\xff", b'{"tokens": [{"id": 1}]}', None])
def test_a_file_that_breaks_leaves_the_former_tokens_in_force(
    tmp_path: Path, broken: bytes | None
) -> None:
    path = tmp_path / "tokens.json"
    ann, text = tk.make("ann", tk.Role.ADMIN)
    tk.write(path, [ann])
    file = tk.TokenFile(path)
    assert file.current(steady=0.0).check(text, now=0.0) == ann
    if broken is None:
        path.unlink()
    else:
        path.write_bytes(broken)
    assert file.current(steady=5.0).check(text, now=0.0) == ann


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "nested", "long"])
def test_what_is_no_file_of_tokens_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A pipe without a writer would keep everybody waiting, and a device has no end."""
    path = tmp_path / "tokens.json"
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir(0o700)
    else:
        path.write_bytes(b'{"x":' + b"[" * 100_000 if kind == "nested" else b" " * 20_000_000)
        path.chmod(0o600)
    says = {"nested": "cannot be read", "long": "bytes"}.get(kind, "no file|directory")
    with pytest.raises(InvalidSetting, match=says):
        tk.read(path)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o644, 0o660, 0o650, 0o777])
def test_a_file_that_others_may_use_is_refused_with_its_mode_and_the_remedy(
    hand: Hand, mode: int
) -> None:
    hand.make("ann")
    hand.path.chmod(mode)
    for args in (("list",), ("create", "bob", "--role", "viewer"), ("revoke", "ann")):
        result = hand.cli(*args)
        assert result.exit_code == Exit.INVALID
        assert f"mode {mode:04o}" in result.stderr
        assert "chmod 0640" in result.stderr
        assert "defaultMode: 0440" in result.stderr
    hand.path.chmod(0o600)
    assert [token.name for token in tk.read(hand.path)] == ["ann"]


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_the_group_may_read_the_file(hand: Hand, mode: int) -> None:
    hand.make("ann")
    hand.path.chmod(mode)
    assert [token.name for token in tk.read(hand.path)] == ["ann"]


def test_a_group_that_could_read_the_file_can_read_it_after_a_change(hand: Hand) -> None:
    hand.make("ann")
    hand.path.chmod(0o640)
    hand.make("bob")
    assert stat.S_IMODE(hand.path.stat().st_mode) == 0o640


def test_a_file_opened_to_others_while_it_is_served_is_told_of_once(
    hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    text = hand.make("ann")
    file = tk.TokenFile(hand.path)
    file.current(steady=0.0)
    hand.path.chmod(0o644)
    for steady in (5.0, 10.0, 15.0):
        assert file.current(steady=steady).check(text, now=0.0) is not None
    [record] = caplog.records
    assert "mode 0644" in record.getMessage()
    hand.path.chmod(0o600)
    file.current(steady=20.0)
    hand.path.chmod(0o644)
    file.current(steady=25.0)
    assert len(caplog.records) == 2
