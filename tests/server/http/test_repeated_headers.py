"""Headers that have one value: a request that sends two of them is refused, whichever counts."""

from collections.abc import Iterator

import pytest

from holdfast.server.auth.access import ONE_VALUED, ChatSecret
from holdfast.server.http.route import Routes, StrictRoute, needs, set_one_valued
from tests.server.conftest import declared
from tests.support.server.listener import Listening, listening
from tests.support.server.wire import APPLY, ask, kept

WORK = b'{"type": "mail.send", "payload": "ann", "waitSeconds": 0}'


@pytest.fixture(scope="module")
def server() -> Iterator[Listening]:
    with listening(declared(), workers=0) as served:
        yield served


def bearer(served: Listening, name: str) -> str:
    return f"authorization: Bearer {served.tokens[name]}"


@pytest.mark.parametrize("second", ["viewer", "admin", "none"])
def test_a_second_token_is_refused(server: Listening, second: str) -> None:
    line = "Authorization: Bearer hf_none" if second == "none" else bearer(server, second)
    told = ask(server, "GET", "/api/tasks", None, line)
    assert (told.status, told.code) == (400, "repeated-header")
    assert b"authorization" in told.body
    assert b"hf_" not in told.body


@pytest.mark.parametrize(
    "lines",
    [
        ("content-type: application/json", "content-type: text/plain"),
        ("content-type: application/json", "content-type: application/json"),
        ("content-encoding: identity", "content-encoding: gzip"),
        ("idempotency-key: a", "idempotency-key: b"),
        ("idempotency-key: a", "Idempotency-Key: a"),
        ("traceparent: a", "traceparent: b"),
    ],
    ids=str,
)
def test_what_says_how_to_read_the_request_stands_in_it_once(
    server: Listening, lines: tuple[str, ...]
) -> None:
    before = kept(server)
    told = ask(server, "POST", APPLY, WORK, *lines)
    assert (told.status, told.code) == (400, "repeated-header")
    assert kept(server) == before, "nothing was submitted"


@pytest.mark.parametrize("second", [str(len(WORK)), "3", "0"])
def test_a_second_length_is_refused(server: Listening, second: str) -> None:
    before = kept(server)
    told = ask(server, "POST", APPLY, WORK, f"content-length: {second}")
    assert (told.status, told.code) == (400, "bad-request")
    assert kept(server) == before


def test_a_stream_begins_at_one_event(server: Listening) -> None:
    lines = ("last-event-id: 1", "last-event-id: 2")
    told = ask(server, "GET", "/internal/alerts/events", None, *lines)
    assert (told.status, told.code) == (400, "repeated-header")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/api/telegram/webhook", b"{}"), ("GET", "/api/tasks", None)],
    ids=["its own route", "any other"],
)
def test_the_secret_of_telegram_stands_in_a_request_once(
    server: Listening, method: str, path: str, body: bytes | None
) -> None:
    name = "X-Telegram-Bot-Api-Secret-Token"
    answer = ask(server, method, path, body, f"{name}: a", f"{name}: b")
    assert (answer.status, answer.code) == (400, "repeated-header")


def test_a_secret_makes_its_header_one_valued_only_where_a_route_takes_it() -> None:
    secret = ChatSecret("pigeon", "Pigeon", "X-Pigeon")
    post, other = Routes("pigeon"), Routes("other")
    post.post("/pigeon", **needs(None, secret=secret))(answer_nothing)
    other.get("/other", **needs(None))(answer_nothing)
    [taking], [plain] = strict_routes(post), strict_routes(other)
    assert taking.one_valued == plain.one_valued == ONE_VALUED
    set_one_valued([taking, plain])
    assert taking.one_valued == plain.one_valued == ONE_VALUED | {b"x-pigeon"}


async def answer_nothing() -> None: ...


def strict_routes(router: Routes) -> list[StrictRoute]:
    return [route for route in router.routes if isinstance(route, StrictRoute)]


def test_other_headers_may_be_repeated(server: Listening) -> None:
    told = ask(server, "GET", "/api/tasks", None, "accept: a", "accept: b", "x-of: 1", "x-of: 2")
    assert told.status == 200


def test_health_is_answered_whatever_is_sent_with_it(server: Listening) -> None:
    assert ask(server, "GET", "/livez", None, bearer(server, "viewer")).status == 200
