"""What one caller can cost: memory, time of the loop, looks at the store, lines in the log."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.engine.operations import audit
from holdfast.server import Service, create_api
from holdfast.server.http.route import StrictRoute
from holdfast.server.routes import health
from holdfast.testing.clock import ManualClock
from tests.server.conftest import BASE, Served, declared
from tests.support.server.listener import Listening, listening

BOUND_SECONDS = 60.0
MUCH = 32 * 1024 * 1024  # more than a connection holds by itself
ASKED = "/internal/tenants/query"
WORK = {"/api/workflows/apply", "/api/tasks", "/api/plans", "/api/triggers"}
AMENDED = {  # they take a payload or a checkpoint, too
    "/internal/tasks/suspended/{task_id}/amend",
    "/internal/checkpoints/{task_id}/put",
}
FREE = {"/api/telegram/webhook"}  # what it sends is Telegram's, and grows


@pytest.fixture(scope="module")
def server() -> Iterator[Listening]:
    with listening(declared(), workers=0) as served:
        yield served


def connected(served: Listening) -> socket.socket:
    return socket.create_connection((served.host, served.port), timeout=BOUND_SECONDS)


# -- what stands behind a body

CHUNKED = (
    b"POST /api/tasks HTTP/1.1\r\nhost: here\r\n"
    b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize(
    ("begun", "part"),
    [
        (b"0\r\n", b"x-more: " + b"y" * 1000 + b"\r\n"),
        (b"0\r\nx-long: ", b"y" * 1000),
        (b"1;", b"e" * 1000),
    ],
    ids=["trailers", "a trailer", "an extension"],
)
def test_what_stands_behind_a_body_is_bounded(server: Listening, begun: bytes, part: bytes) -> None:
    """No token is needed to send it, and the parser keeps it."""
    with connected(server) as line:
        line.sendall(CHUNKED + begun)
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            line.sendall(part * (MUCH // len(part)))


def test_a_few_trailers_do_no_harm(server: Listening) -> None:
    body = b'{"tenants":["t-1"]}'
    head = f"POST {ASKED} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n"
    head += f"authorization: Bearer {server.tokens['viewer']}\r\n"
    head += "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    with connected(server) as line:
        line.sendall(head.encode() + b"%x\r\n%s\r\n0\r\nx-sum: 1\r\n\r\n" % (len(body), body))
        assert line.recv(100).startswith(b"HTTP/1.1 200")


# -- bodies


async def posted(
    served: Served, path: str, body: bytes, name: str = "operator"
) -> tuple[int, str | None]:
    headers = {"content-type": "application/json"}
    answer = await served.client(name).post(path, content=body, headers=headers)
    return answer.status_code, answer.json().get("code")


def many(count: int) -> str:
    """So many fields that nobody knows."""
    return ",".join(f'"{number:x}":0' for number in range(count))


async def test_only_work_may_be_large(idle: Served) -> None:
    routes = [one for one in idle.api.routes if isinstance(one, StrictRoute)]
    paths = {one.path for one in routes if "POST" in (one.methods or ())}
    large = {"type": "mail.send", "payload": "x" * 70_000, "waitSeconds": 0}
    body = json.dumps(large).encode()
    found = {path: await posted(idle, path, body, "admin") for path in sorted(paths)}
    assert {path for path, told in found.items() if told[0] != 413} == WORK | AMENDED | FREE


async def test_a_body_of_many_unknown_fields_is_refused_before_each_becomes_an_error(
    idle: Served,
) -> None:
    assert await posted(idle, ASKED, f"{{{many(700_000)}}}".encode(), "viewer") == (
        413,
        "body-too-large",
    )
    told = await posted(idle, ASKED, f"{{{many(7_000)}}}".encode(), "viewer")
    assert told == (422, "body-too-wide")


@pytest.mark.parametrize("path", sorted(WORK))
async def test_where_a_body_may_be_large_its_unknown_names_are_few(idle: Served, path: str) -> None:
    told = await posted(idle, path, f'{{"type":"mail.send",{many(21)}}}'.encode())
    assert told == (422, "body-too-wide")


async def test_the_unknown_names_of_all_tasks_are_counted_together(idle: Served) -> None:
    tasks = ",".join(f'{{"type":"mail.send","{number}":0}}' for number in range(21))
    for path in ("/api/tasks", "/api/plans"):
        told = await posted(idle, path, f'{{"tasks":[{tasks}]}}'.encode())
        assert told == (422, "body-too-wide")


async def test_a_few_unknown_names_are_told_by_name(idle: Served) -> None:
    body = f'{{"type":"mail.send",{many(20)}}}'.encode()
    assert await posted(idle, "/api/workflows/apply", body) == (422, "invalid-request")


@pytest.mark.parametrize("one", ["[]", "{}", "0", '{"a":[0]}'])
async def test_a_body_has_a_bounded_number_of_values(idle: Served, one: str) -> None:
    """Two bytes on the wire are fifty here."""
    payload = ",".join([one] * 220_000)
    body = f'{{"type":"mail.send","payload":[{payload}]}}'.encode()
    assert await posted(idle, "/api/workflows/apply", body) == (422, "body-too-wide")


async def test_marks_within_a_text_are_no_values(idle: Served) -> None:
    text = json.dumps(',:[{"\\' * 50_000)
    body = f'{{"type":"mail.send","payload":{text},"waitSeconds":0}}'.encode()
    assert await posted(idle, "/api/workflows/apply", body) == (202, None)


def test_a_text_that_never_ends_is_read_once() -> None:
    """Not from each of its quotes anew, which would take hours."""
    from holdfast.domain.errors import NotJson
    from holdfast.server.http.bodies import LARGE_VALUES, value_of

    with pytest.raises(NotJson):
        value_of(b'["' + b'\\",' * 2_000_000, LARGE_VALUES)


async def test_a_long_body_is_read_beside_the_loop(
    idle: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.server.http import bodies

    real, threads = bodies.value_of, list[threading.Thread]()

    def noted(body: bytes, values_max: int) -> Any:
        threads.append(threading.current_thread())
        return real(body, values_max)

    monkeypatch.setattr(bodies, "value_of", noted)
    for size in (1_000, 300_000):
        body = json.dumps({"tasks": [{"type": "mail.send", "payload": "x" * size}]}).encode()
        assert (await posted(idle, "/api/tasks", body))[0] == 202
    assert [one is threading.main_thread() for one in threads] == [True, False]


async def test_a_body_that_is_wrong_is_read_once(
    idle: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.server.http import bodies

    real, reads = bodies.value_of, list[int]()

    def noted(body: bytes, values_max: int) -> Any:
        reads.append(len(body))
        return real(body, values_max)

    monkeypatch.setattr(bodies, "value_of", noted)
    assert (await posted(idle, "/api/tasks", b'{"tasks":[{"type":7}]}'))[0] == 422
    assert len(reads) == 1


# -- looks at the store


class Slow:
    """Stands in for a look that takes long; counts how often it is taken."""

    def __init__(self, real: Any) -> None:
        self.real, self.count = real, 0
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, *args: Any, **options: Any) -> Any:
        self.count += 1
        self.begun.set()
        await self.go_on.wait()
        return await self.real(*args, **options)


async def asked_at_once(served: Served, slow: Slow, paths: list[str], name: str | None) -> None:
    client = served.client(name)
    asking = [asyncio.create_task(client.get(path)) for path in paths]
    async with asyncio.timeout(BOUND_SECONDS):
        await slow.begun.wait()
        await client.get("/livez")  # whoever asks, asks by now
        slow.go_on.set()
        assert {(await one).status_code for one in asking} == {200}


async def test_many_who_ask_the_doctor_share_one_examination(
    still: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(still.app.store.admin.doctor)
    monkeypatch.setattr(still.app.store.admin, "doctor", slow)
    await asked_at_once(still, slow, ["/internal/doctor"] * 10, "viewer")
    assert (await still.client("viewer").get("/internal/doctor")).status_code == 200
    assert slow.count == 1


async def test_what_was_mended_is_examined_anew(
    still: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(still.app.store.admin.doctor)
    slow.go_on.set()
    monkeypatch.setattr(still.app.store.admin, "doctor", slow)
    for method, path in (("GET", ""), ("POST", "/fix"), ("GET", ""), ("GET", "")):
        answer = await still.client().request(method, f"/internal/doctor{path}")
        assert answer.status_code == 200
    assert slow.count == 3


async def test_many_who_verify_the_chain_share_one_walk(
    still: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever head each of them has noted."""
    slow = Slow(audit.verify)
    monkeypatch.setattr(audit, "verify", slow)
    path = "/internal/audit/verify"
    heads = [f"{path}?head={number}:{'0' * 64}" for number in range(10)]
    await asked_at_once(still, slow, [path, *heads], "viewer")
    assert slow.count == 1


async def test_each_head_is_compared_by_itself(idle: Served) -> None:
    client, path = idle.client(), "/internal/audit/verify"
    for queue in ("a", "b", "c"):
        await client.post(f"/internal/queues/{queue}/intake/pause", json={"force": True})
    head = (await client.get(path)).json()["head"]
    number = int(head.partition(":")[0])
    for noted, broken_at in (
        (head, None),
        (f"{number}:{'0' * 64}", number),
        (f"{number - 1}:{'0' * 64}", number - 1),
        (f"{number + 5}:{'0' * 64}", number),
    ):
        told = (await client.get(path, params={"head": noted})).json()
        assert (told["holds"], told["brokenAt"]) == (broken_at is None, broken_at), noted


async def test_a_head_that_is_newer_than_the_walk_is_known(still: Served) -> None:
    client, path = still.client(), "/internal/audit/verify"
    await client.get(path)
    await client.post("/internal/queues/a/intake/pause", json={"force": True})
    chain = await still.app.store.admin.chain(limit=1)
    told = (await client.get(path, params={"head": audit.format_link(chain.head)})).json()
    assert told["holds"] is True


async def test_many_who_ask_whether_it_is_ready_share_one_look(
    still: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token is needed to ask."""
    slow = Slow(still.app.store.views.workers)
    monkeypatch.setattr(still.app.store.views, "workers", slow)
    monkeypatch.setattr(health, "STORE_SECONDS", BOUND_SECONDS)
    await asked_at_once(still, slow, ["/readyz"] * 10, None)
    assert (await still.client(None).get("/readyz")).status_code == 200
    assert slow.count == 1


async def test_to_anybody_is_told_what_kind_of_store_it_is_and_no_more(tmp_path: Path) -> None:
    api = create_api(Service(declared(f"sqlite:///{tmp_path}/kept.db")))
    transport = httpx.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url=BASE) as client,
    ):
        answer = await client.get("/readyz")
    assert answer.json()["store"] == "sqlite"
    assert "kept.db" not in answer.text


class Watched:
    """SharedReads, with a clock that the test moves."""

    def __init__(self) -> None:
        from holdfast.server.live.shared_reads import SharedReads

        self.clock = ManualClock()
        self.looks = SharedReads(self.clock.steady)
        self.taken = 0
        self.lasts_seconds = 0.0
        self.fails = False

    async def look(self) -> int:
        self.taken += 1
        self.clock.advance(self.lasts_seconds)
        if self.fails:
            raise StoreUnavailable("away")
        return self.taken

    async def at(self) -> int:
        return await self.looks.get("it", self.look, fresh_seconds=2.0)


async def test_a_look_serves_for_a_while_and_no_longer() -> None:
    watched = Watched()
    assert [await watched.at(), await watched.at()] == [1, 1]
    watched.clock.advance(2.0)
    assert await watched.at() == 2


async def test_looks_that_serve_nobody_any_more_are_not_kept() -> None:
    from holdfast.server.live.shared_reads import KEPT

    watched = Watched()
    for number in range(5_000):
        await watched.looks.get(f"plan-{number}", watched.look, fresh_seconds=2.0)
        watched.clock.advance(0.0 if number % 2 else 0.001)
    assert watched.looks.kept <= KEPT
    assert await watched.looks.get("plan-4999", watched.look, fresh_seconds=2.0) == 5_000


async def test_a_look_that_took_long_serves_for_as_long() -> None:
    watched = Watched()
    watched.lasts_seconds = 60.0
    assert await watched.at() == 1
    watched.clock.advance(59.0)
    assert await watched.at() == 1
    watched.clock.advance(1.0)
    assert await watched.at() == 2


async def test_a_look_that_failed_serves_nobody_after() -> None:
    watched = Watched()
    watched.fails = True
    with pytest.raises(StoreUnavailable):
        await watched.at()
    watched.fails = False
    assert await watched.at() == 2


async def test_who_gives_up_takes_the_look_from_no_other(
    still: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(still.app.store.admin.doctor)
    monkeypatch.setattr(still.app.store.admin, "doctor", slow)
    client = still.client()
    first, second = (asyncio.create_task(client.get("/internal/doctor")) for _ in range(2))
    async with asyncio.timeout(BOUND_SECONDS):
        await slow.begun.wait()
        await client.get("/livez")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        slow.go_on.set()
        assert (await second).status_code == 200
    assert slow.count == 1


# -- lines in the log


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "holdfast.server"]


async def test_nothing_in_a_path_steers_whoever_reads_the_log(
    idle: Served, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/api/tasks/x%1b[31mRED%0d%0aFAKE%20line%e2%80%ae/cancel"
    assert (await idle.client(None).post(path)).status_code == 401
    [line] = lines_of(caplog)
    assert "RED" in line
    assert line.isprintable(), line


async def test_strangers_cannot_fill_the_log(
    idle: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client = idle.client(None)
    began = time.monotonic()
    for _ in range(300):
        await client.get("/api/tasks/" + "x" * 3_000)
    seconds = time.monotonic() - began
    lines = lines_of(caplog)
    assert 0 < len(lines) <= 2 * (11 + 5 * seconds)
    assert max(map(len, lines)) < 1_000


async def test_what_was_left_out_is_told_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    from holdfast.server.http.log_lines import LogLines

    clock = ManualClock()
    lines = LogLines(clock.steady)
    for _ in range(30):
        lines.say(logging.WARNING, "so it is: %s", "x")
    clock.advance(1.0)
    lines.say(logging.WARNING, "so it is: %s", "x")
    assert lines_of(caplog)[-2:] == [
        "20 more lines such as the next one were left out",
        "so it is: x",
    ]


async def test_many_addresses_cannot_fill_the_log_or_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from holdfast.server.http import log_lines as module

    clock = ManualClock()
    lines = module.LogLines(clock.steady)
    for number in range(3_000):
        host = f"10.0.{number // 250}.{number % 250}"
        lines.say(logging.WARNING, "a request from %s", host, of=host)
    written = len(lines_of(caplog))
    assert written <= 2 * module.ALL_LINES_RATE
    assert len(lines._left_out) <= module.SOURCES_MAX
    clock.advance(1.0)
    lines.say(logging.WARNING, "a request from %s", "10.9.9.9", of="10.9.9.9")
    lost = 3_000 - written - module.SOURCES_MAX
    assert lines_of(caplog)[-2:] == [
        f"{lost} more lines about other addresses were left out",
        "a request from 10.9.9.9",
    ]
    lines.say(logging.ERROR, "a fault of our own")
    assert lines_of(caplog)[-1] == "a fault of our own", "strangers do not use up its rate"


async def test_the_addresses_of_one_ipv6_network_share_a_rate_of_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from holdfast.server.http.log_lines import LINES_RATE, LogLines

    lines = LogLines(ManualClock().steady)
    for number in range(30):
        host = f"2001:db8::{number:x}"
        lines.say(logging.WARNING, "a request from %s", host, of=host)
    assert len(lines_of(caplog)) == 2 * LINES_RATE
    assert len(lines._left_out) == 1


async def test_what_nobody_foresaw_does_not_fill_the_log_either(
    idle: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(idle.app.registry, "names", broken)
    client, began = idle.client(), time.monotonic()
    answers = {(await client.get("/api/types")).status_code for _ in range(200)}
    assert answers <= {500, 429}
    seconds = time.monotonic() - began
    assert 0 < len(lines_of(caplog)) <= 2 * (11 + 5 * seconds)
