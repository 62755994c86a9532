"""What is posted arrives as it is; whatever a receiver does, the poster ends, repeating nothing."""

import asyncio
import logging
import socket
import ssl
import subprocess
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpcore
import pytest
import trustme

from holdfast.domain.errors import NotDelivered, UrlRefused
from holdfast.notify.addresses import Allowed
from holdfast.notify.post import Answered, Poster, retry_after_seconds
from tests.support.sinks import receiver as ways
from tests.support.sinks.receiver import Behaviour, Receiver, answer

NAME = "hooks.test"
SOON_SECONDS, PATIENT_SECONDS, BOUND_SECONDS = 0.3, 60.0, 120.0
SECRET_PATH = "/hidden?token=hidden"
HERE = Allowed.parse("127.0.0.1")
LOOPBACK_NETWORK = Allowed.parse("127.0.0.1/32")


class Resolver:
    """Answers in order, the last one again and again; knows how often it was asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = answers, 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


LOCAL = Resolver(["127.0.0.1"])


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def certified(authority: trustme.CA, name: str = NAME) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def patient(allowed: Allowed, **options: Any) -> Poster:
    return Poster(allowed, timeout_seconds=PATIENT_SECONDS, **options)


async def not_delivered(poster: Poster, url: str) -> str:
    with pytest.raises(NotDelivered) as caught:
        async with asyncio.timeout(BOUND_SECONDS):
            await poster.post(url, b"{}", {})
    assert caught.value.__context__ is None, "it carries what the other side may have said"
    return str(caught.value)


async def told_of(behaviour: Behaviour, timeout_seconds: float = PATIENT_SECONDS) -> str:
    async with Receiver(behaviour) as receiver:
        poster = Poster(HERE, timeout_seconds=timeout_seconds)
        said = await not_delivered(poster, receiver.url(SECRET_PATH))
        assert said.startswith(f"http://127.0.0.1:{receiver.port} ")
        return said.partition(" ")[2]


async def test_a_message_arrives_as_it_is() -> None:
    headers = {"webhook-id": "msg_1", "content-type": "application/json", "user-agent": "holdfast"}
    async with Receiver() as receiver:
        answered = await patient(HERE).post(receiver.url("/told?a=%20b"), b'{"a": 1}', headers)
        assert answered == Answered(200, None)
        [seen] = receiver.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/told?a=%20b", b'{"a": 1}')
    added = {"host": f"127.0.0.1:{receiver.port}", "content-length": "8", "connection": "close"}
    assert seen.headers == headers | added


@pytest.mark.parametrize("status", [200, 204, 301, 404, 410, 429, 500, 503, 599])
async def test_an_answer_is_a_status_good_or_bad(status: int) -> None:
    async with Receiver(answer(status)) as receiver:
        assert await patient(HERE).post(receiver.url(), b"{}", {}) == Answered(status, None)


async def test_a_redirect_is_an_answer_that_nobody_follows() -> None:
    async with Receiver(ways.redirect("/elsewhere"), answer(200)) as receiver:
        answered = await patient(HERE).post(receiver.url("/told"), b"{}", {})
        assert answered.status == 302
        assert [seen.path for seen in receiver.seen] == ["/told"]
        assert receiver.connected == 1


@pytest.mark.parametrize(
    "behaviour",
    [ways.hang, ways.hang_in_head, ways.slow_drip, ways.saying(b"HTTP/1.1 102 Wait\r\n\r\n")],
    ids=["silent", "in the head", "drip by drip", "interim"],
)
async def test_no_answer_in_time_is_not_delivered(behaviour: Behaviour) -> None:
    assert await told_of(behaviour, SOON_SECONDS) == "did not answer in 0.3 s"


async def test_a_receiver_that_does_not_take_the_message_is_given_up() -> None:
    async with Receiver(ways.hang_unread) as receiver:
        poster = Poster(HERE, timeout_seconds=SOON_SECONDS)
        with pytest.raises(NotDelivered, match="did not answer in"):
            await poster.post(receiver.url(), b"x" * 50_000_000, {})


@pytest.mark.parametrize(
    "behaviour",
    [ways.endless_head, ways.endless_line, ways.endless_interim],
    ids=["headers", "line", "interim"],
)
async def test_an_endless_head_is_not_read_to_its_end(behaviour: Behaviour) -> None:
    assert await told_of(behaviour) == "did not answer in HTTP"


@pytest.mark.parametrize(
    "behaviour", [ways.endless_body, ways.endless_chunks], ids=["length", "chunks"]
)
async def test_a_body_is_never_read(behaviour: Behaviour) -> None:
    async with Receiver(behaviour) as receiver:
        assert (await patient(HERE).post(receiver.url(), b"{}", {})).status == 200
        assert receiver.sent_bytes < 20_000_000, "only what the system's buffers hold"


async def test_interim_answers_without_end_are_given_up_over_tls_too(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with Receiver(ways.endless_interim, tls=certified(authority)) as receiver:
        poster = patient(Allowed.parse(NAME), resolve=LOCAL, ssl_context=trusting)
        said = await not_delivered(poster, receiver.url(host=NAME))
    assert said.endswith("did not answer in HTTP")


@pytest.mark.parametrize("length", [0, 10])
async def test_the_connection_is_closed_after_the_head(length: int) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n".encode()
    async with Receiver(ways.saying(head)) as receiver:
        await patient(HERE).post(receiver.url(), b"{}", {})
        await receiver.left(1)


async def test_the_logs_are_not_told_what_the_answer_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    bad = ways.saying(b"told-you-a-secret\r\n\r\n")
    good = answer(200, "x-said: told-you-a-secret")
    async with Receiver(good, bad, good) as receiver:
        await patient(HERE).post(receiver.url(SECRET_PATH), b"{}", {})
        await not_delivered(patient(HERE), receiver.url(SECRET_PATH))
        assert "told-you-a-secret" not in caplog.text
        assert "hidden" not in caplog.text
        async with httpcore.AsyncConnectionPool() as pool:
            await pool.request("GET", receiver.url())
        assert "told-you-a-secret" in caplog.text, "others' requests are logged as ever"


async def test_an_answer_before_the_message_is_through_counts() -> None:
    async def impatient(caller: ways.Caller) -> None:
        await caller.send(b"HTTP/1.1 413 Enough\r\ncontent-length: 0\r\n\r\n")
        await caller.until_gone()

    async with Receiver(impatient) as receiver:
        assert (await patient(HERE).post(receiver.url(), b"{}", {})).status == 413


@pytest.mark.parametrize("behaviour", [ways.reset, ways.close])
async def test_a_connection_that_breaks_is_not_delivered(behaviour: Behaviour) -> None:
    assert await told_of(behaviour) in {"broke the connection", "did not answer in HTTP"}


@pytest.mark.parametrize(
    "said",
    [
        b"220 told-you-a-secret ESMTP\r\n\r\n",
        b"HTTP/1.1 099 told-you-a-secret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: told-you-a-secret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n told-you-a-secret\x00: b\r\n\r\n",
        b"\x16\x03\x01 told-you-a-secret\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_not_repeated(said: bytes) -> None:
    async with Receiver(ways.saying(said)) as receiver:
        with pytest.raises(NotDelivered, match="did not answer in HTTP") as caught:
            await patient(HERE).post(receiver.url(SECRET_PATH), b"{}", {})
    whole = "".join(traceback.format_exception(caught.value))
    assert "told-you-a-secret" not in whole
    assert "hidden" not in whole
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_nobody_there_is_not_delivered() -> None:
    with socket.socket() as deaf:  # bound, so that nobody else gets the port
        deaf.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        assert "could not be connected to" in await not_delivered(patient(HERE), url)


async def test_a_name_that_does_not_resolve_is_not_delivered() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror("no such name")

    poster = patient(HERE, resolve=unknown)
    assert "does not resolve" in await not_delivered(poster, f"https://{NAME}/")
    nowhere = patient(HERE, resolve=Resolver([]))
    assert "could not be connected to" in await not_delivered(nowhere, f"https://{NAME}/")


async def test_a_name_server_that_hangs_is_within_the_deadline() -> None:
    async def hanging(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    poster = Poster(HERE, timeout_seconds=SOON_SECONDS, resolve=hanging)
    assert await not_delivered(poster, f"https://{NAME}/") == (
        f"https://{NAME} did not answer in 0.3 s"
    )


async def test_the_systems_own_resolver_is_asked_in_threads_of_the_posters() -> None:
    async with Receiver() as receiver:
        poster = patient(Allowed.parse("localhost"))
        assert (await poster.post(receiver.url(host="localhost"), b"{}", {})).status == 200


async def test_tls_is_spoken_with_the_name_at_the_address_that_was_judged(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with Receiver(tls=certified(authority)) as receiver:
        poster = patient(LOOPBACK_NETWORK, resolve=LOCAL, ssl_context=trusting)
        assert (await poster.post(receiver.url(host=NAME), b"{}", {})).status == 200
        assert receiver.seen[0].headers["host"] == f"{NAME}:{receiver.port}"


async def test_a_certificate_of_another_name_is_refused(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with Receiver(tls=certified(authority, "other.test")) as receiver:
        poster = patient(LOOPBACK_NETWORK, resolve=LOCAL, ssl_context=trusting)
        said = await not_delivered(poster, receiver.url(host=NAME))
        assert "a certificate that is not trusted: Hostname mismatch" in said
        assert not receiver.seen


async def test_a_certificate_of_nobody_we_know_is_refused(authority: trustme.CA) -> None:
    async with Receiver(tls=certified(authority)) as receiver:
        poster = patient(Allowed.parse(NAME), resolve=LOCAL)
        said = await not_delivered(poster, receiver.url(host=NAME))
        assert "a certificate that is not trusted" in said
        assert not receiver.seen


async def test_an_authority_of_the_environment_is_trusted(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with Receiver(tls=certified(authority)) as receiver:
        poster = patient(Allowed.parse(NAME), resolve=LOCAL)
        assert (await poster.post(receiver.url(host=NAME), b"{}", {})).status == 200


async def test_tls_that_hangs_is_within_the_deadline(trusting: ssl.SSLContext) -> None:
    async def mute(caller: ways.Caller) -> None:
        await caller.until_gone()

    for seconds in (SOON_SECONDS, 3.0, 30.0):  # it may be over before anybody is connected
        async with Receiver(mute) as receiver:
            poster = Poster(HERE, timeout_seconds=seconds, ssl_context=trusting)
            url = receiver.url().replace("http:", "https:")
            assert f"did not answer in {seconds:g} s" in await not_delivered(poster, url)
            if receiver.connected:
                await receiver.left(1)
                return
    pytest.fail("it never got as far as a connection")


async def test_tls_to_who_speaks_none_is_told(trusting: ssl.SSLContext) -> None:
    async def plain(caller: ways.Caller) -> None:
        await caller.send(b"HTTP/1.1 400 told-you-a-secret\r\n\r\n")
        await caller.until_gone()

    async with Receiver(plain) as receiver:
        url = receiver.url().replace("http:", "https:")
        said = await not_delivered(patient(HERE, ssl_context=trusting), url)
    assert said.endswith("failed in the TLS handshake")


async def test_a_name_is_resolved_exactly_once(
    authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    rebinding = Resolver(["127.0.0.1"], ["10.0.0.1"])
    async with Receiver(tls=certified(authority)) as receiver:
        poster = patient(LOOPBACK_NETWORK, resolve=rebinding, ssl_context=trusting)
        assert (await poster.post(receiver.url(host=NAME), b"{}", {})).status == 200
        assert rebinding.asked == 1
        with pytest.raises(UrlRefused):
            await poster.post(receiver.url(host=NAME), b"{}", {})
        assert rebinding.asked == 2
        assert receiver.connected == 1


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["127.0.0.1", "8.8.8.8"],
        ["127.0.0.1", "2606:4700::1111"],
        ["::ffff:127.0.0.1"],
        ["127.0.0.1", "169.254.169.254"],
    ],
)
async def test_one_private_address_among_public_ones_is_enough_to_refuse(
    addresses: list[str], authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with Receiver(tls=certified(authority)) as receiver:
        poster = patient(Allowed(), resolve=Resolver(addresses), ssl_context=trusting)
        with pytest.raises(UrlRefused, match="not public") as caught:
            await poster.post(receiver.url(SECRET_PATH, host=NAME), b"{}", {})
        assert receiver.connected == 0
    assert not any(address in str(caught.value) for address in addresses)
    assert "hidden" not in str(caught.value)


async def test_the_url_is_judged_again_when_it_is_used() -> None:
    async with Receiver() as receiver:
        with pytest.raises(UrlRefused):
            await patient(Allowed()).post(receiver.url(), b"{}", {})
        assert receiver.connected == 0


async def test_the_next_address_is_tried_when_one_is_dead() -> None:
    resolver = Resolver(["::1", "127.0.0.1"])
    async with Receiver() as receiver:
        poster = patient(Allowed.parse(NAME), resolve=resolver)
        assert (await poster.post(receiver.url(host=NAME), b"{}", {})).status == 200
    assert resolver.asked == 1


async def test_an_address_that_swallows_everything_takes_only_its_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = httpcore.AnyIOBackend.connect_tcp
    shares: list[float | None] = []

    async def swallowed(
        self: Any, host: str, port: int, timeout: float | None = None, *rest: Any
    ) -> Any:
        shares.append(timeout)
        if host == "::1":
            raise httpcore.ConnectTimeout
        return await connect(self, host, port, timeout, *rest)

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", swallowed)
    async with Receiver() as receiver:
        poster = patient(Allowed.parse(NAME), resolve=Resolver(["::1", "127.0.0.1"]))
        assert (await poster.post(receiver.url(host=NAME), b"{}", {})).status == 200
    assert shares == [PATIENT_SECONDS / 2, None]


async def test_many_addresses_are_not_all_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def refused(self: Any, host: str, *rest: Any) -> Any:
        tried.append(host)
        raise httpcore.ConnectError

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", refused)
    poster = patient(Allowed(), resolve=Resolver([f"8.8.8.{number}" for number in range(200)]))
    assert "could not be connected to" in await not_delivered(poster, f"https://{NAME}/")
    assert tried == ["8.8.8.0", "8.8.8.1", "8.8.8.2", "8.8.8.3"]


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as proxy, Receiver() as receiver:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
            monkeypatch.setenv(name.lower(), proxy.url())
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        poster = patient(Allowed.parse(NAME), resolve=LOCAL)
        assert (await poster.post(receiver.url(host=NAME), b"{}", {})).status == 200
        assert proxy.connected == 0


async def test_one_poster_serves_many_at_once() -> None:
    async with Receiver() as receiver:
        poster = patient(HERE)
        posts = (poster.post(receiver.url(), str(n).encode(), {}) for n in range(20))
        assert await asyncio.gather(*posts) == [Answered(200, None)] * 20
        assert sorted(int(seen.body) for seen in receiver.seen) == list(range(20))
        assert receiver.connected == 20, "no connection is used twice"


async def test_a_post_that_is_cancelled_says_so() -> None:
    async with Receiver(ways.hang) as receiver:
        posting = asyncio.create_task(patient(HERE).post(receiver.url(), b"{}", {}))
        await receiver.got(1)
        posting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await posting


async def test_when_to_try_again_is_read() -> None:
    async with Receiver(answer(503, "Retry-After: 120")) as receiver:
        assert await patient(HERE).post(receiver.url(), b"{}", {}) == Answered(503, 120.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("99999999999999999999", 3600.0),
        ("Mon, 16 Nov 2026 12:00:30 GMT", 30.0),
        ("Mon, 16 Nov 2026 13:00:30 +0100", 30.0),
        ("Mon, 16 Nov 2026 12:00:30 -0000", 30.0),
        ("Mon, 16 Nov 2026 11:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
    ],
)
def test_a_time_to_try_again_is_kept_within_an_hour(text: str, seconds: float) -> None:
    assert retry_after_seconds(text, datetime(2026, 11, 16, 12, tzinfo=UTC)) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *["", "-5", "1.5", "soon", "٣", "nan", "inf", "1e9", "9" * 5000, "a" * 60_000],
        *["Mon, 99 Nov 2026 12:00 GMT", "Fri, 31 Dec 9999 23:59:59 +9999999999"],
    ],
)
def test_a_time_to_try_again_that_cannot_be_read_is_none(text: str) -> None:
    assert retry_after_seconds(text, datetime(2026, 11, 16, 12, tzinfo=UTC)) is None


def test_without_httpcore_urls_are_checked_and_signatures_made() -> None:
    program = (
        "import sys; sys.modules['httpcore'] = None\n"
        "import holdfast.notify.addresses, holdfast.notify.signature\n"
        "try:\n    import holdfast.notify.post\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'holdfast-engine[webhooks]'" in done.stdout
