"""`holdfast serve`: one process that does it all, and ends without losing anything."""

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from holdfast import Holdfast, Status
from holdfast.cli import extras
from holdfast.cli.exit_codes import Exit
from holdfast.cli.root import cli
from holdfast.domain.errors import InvalidSetting
from holdfast.domain.task import decide
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied
from holdfast.ports import Filter
from holdfast.server import serve
from holdfast.server.auth import tokens as tk
from holdfast.server.http import protocol
from holdfast.settings import load
from tests.server.conftest import Served
from tests.support.server.processes import BOUND_SECONDS, Serving, is_there, token_file
from verify.servers.poll import until

# -- all in one process


def test_one_process_answers_works_and_ends_in_peace(tmp_path: Path) -> None:
    with Serving(tmp_path) as serving:
        assert serving.listening().startswith("listening on http://127.0.0.1:")
        answer = serving.apply("mail.send", "ann", BOUND_SECONDS)
        assert (answer.status, answer.json["result"]) == (200, "ann")
        assert "server" not in {name.lower() for name in answer.headers}
        serving.signal()
        assert serving.ended() == 0
        assert "the service has stopped" in serving.said()


def test_it_can_be_split_into_service_and_worker_processes(tmp_path: Path) -> None:
    with Serving(tmp_path, "--no-workers", "--processes", "2", HOLDFAST_LEASE="2s") as serving:
        serving.listening()
        answer = serving.apply("slow", "soon", BOUND_SECONDS)
        assert answer.status == 200, answer.body
        found = until(lambda: workers_of(serving, 2), "both are there", seconds=BOUND_SECONDS)
        assert serving.pid not in found
        os.kill(found[0], signal.SIGKILL)
        until(lambda: set(workers_of(serving, 2)) - set(found), "a new one", seconds=BOUND_SECONDS)
        serving.signal()
        assert serving.ended() == 0
        assert not any(map(is_there, found))


def all_workers(serving: Serving) -> list[dict[str, str]]:
    found: list[dict[str, str]] = serving.ask("GET", "/internal/workers").json["workers"]
    return found


def workers_of(serving: Serving, count: int) -> list[int]:
    """The processes of the pool that have come so far as to work."""
    told = serving.ask("GET", "/internal/workers").json
    alive = {one["pid"] for one in told["pool"]["processes"]}
    found = [one["pid"] for one in told["workers"] if one["pid"] in alive]
    return found if len(found) == count else []


def test_its_pool_is_scaled_through_the_api(tmp_path: Path) -> None:
    with Serving(tmp_path, "--no-workers", HOLDFAST_POOL_LIMIT="2") as serving:
        serving.listening()
        answer = serving.ask("POST", "/internal/workers/scale", {"processes": 1})
        assert answer.status == 200, answer.body
        [pid] = until(lambda: workers_of(serving, 1), "it works", seconds=BOUND_SECONDS)
        assert serving.ask("POST", "/internal/workers/scale", {"processes": 3}).status == 422
        assert serving.ask("POST", "/internal/workers/scale", {"processes": 0}).status == 200
        until(lambda: not is_there(pid), "it has gone", seconds=BOUND_SECONDS)


def test_a_worker_that_is_drained_stops_and_the_service_goes_on(tmp_path: Path) -> None:
    with Serving(tmp_path) as serving:
        serving.listening()
        [worker] = until(lambda: all_workers(serving), "it is there")
        answer = serving.ask("POST", f"/internal/workers/{worker['worker']}/drain")
        assert answer.status in (200, 202), answer.body
        until(lambda: not all_workers(serving), "it has left")
        assert serving.apply("mail.send", "ann").status == 202
        assert serving.ask("GET", "/readyz").json["consuming"] is False
        serving.signal()
        assert serving.ended() == 0


def test_in_json_it_says_its_address_in_json(tmp_path: Path) -> None:
    path, _ = token_file(tmp_path)
    with Serving(tmp_path, HOLDFAST_LOG="json", HOLDFAST_TOKENS=str(path)) as serving:
        said = json.loads(serving.listening())
        assert said == {"event": "listening", "url": serving.url}
        serving.signal()
        assert serving.ended() == 0
        lines = [json.loads(line) for line in serving.said().splitlines()]
        assert "the service has stopped" in [line["event"] for line in lines]


def test_a_lost_lease_of_a_plain_function_ends_the_process(tmp_path: Path) -> None:
    """A process that stands still for so long loses it by itself, and ends in the same way."""
    with Serving(tmp_path, HOLDFAST_LEASE="3s") as serving:
        serving.listening()
        with suppress(OSError, HTTPException):  # it has ended before it could answer
            serving.apply("plain", "x")
        until(lambda: serving.has_ended() or was_taken_away(serving.store), "it is lost")
        assert serving.ended() == 70
        assert "its lease is lost" in serving.said()


def was_taken_away(url: str) -> bool:
    """As another worker would, when the lease has lapsed. False: nobody has it, or not any more."""

    async def take() -> bool:
        app = Holdfast(url)
        async with app:
            tasks = (await app.store.views.find(Filter(), limit=1)).tasks
            if not tasks or tasks[0].lease is None:
                return False
            now = app.clock.now()
            freed = decide.give_back(tasks[0], "taken", now=now, interrupted=True)
            [outcome] = await app.store.tasks.apply([freed])
            if not isinstance(outcome, Applied):
                return False
            await app.control.pause(tasks[0].id)
            return True

    return asyncio.run(take())


# -- the end


def test_under_load_no_request_that_was_answered_is_lost(tmp_path: Path) -> None:
    with Serving(tmp_path, "--no-workers") as serving:
        serving.listening()
        answered: list[str] = []
        enough = threading.Event()

        def submit() -> None:
            line = serving.line()
            try:
                while True:
                    body = {"type": "mail.send", "payload": "ann", "waitSeconds": 0}
                    answer = line.ask("POST", "/api/workflows/apply", body)
                    assert answer.status == 202, answer.body
                    answered.append(answer.json["taskId"])
                    if len(answered) >= 200:
                        enough.set()
            except (OSError, HTTPException):
                return  # it is gone
            finally:
                line.close()

        callers = [threading.Thread(target=submit) for _ in range(6)]
        for caller in callers:
            caller.start()
        assert enough.wait(60), serving.said()
        serving.signal()
        assert serving.ended() == 0, serving.said()
        for caller in callers:
            caller.join(BOUND_SECONDS)
        assert len(answered) >= 200
        assert set(answered) <= {task.id for task in stored(serving.store)}


def stored(url: str) -> list[Task]:
    async def look() -> list[Task]:
        app, found, cursor = Holdfast(url), list[Task](), None
        async with app:
            while True:
                page = await app.store.views.find(Filter(), limit=500, cursor=cursor)
                found += page.tasks
                if (cursor := page.cursor) is None:
                    return found

    return asyncio.run(look())


def test_those_who_wait_long_are_answered_at_once_when_it_stops(tmp_path: Path) -> None:
    with Serving(tmp_path, HOLDFAST_DRAIN="0s") as serving:
        serving.listening()
        answers: list[int] = []
        waiting = threading.Thread(
            target=lambda: answers.append(serving.apply("slow", "forever", 120.0).status)
        )
        waiting.start()
        until(lambda: running(serving), "it runs")
        serving.signal()
        waiting.join(BOUND_SECONDS)
        assert answers == [202]
        assert serving.ended() == 0


def running(serving: Serving) -> bool:
    tasks = serving.ask("GET", "/api/tasks?status=RUNNING").json["tasks"]
    return bool(tasks)


@pytest.mark.parametrize(
    ("options", "code"),
    [((), Exit.FAILED), (("--no-workers", "--processes", "1"), Exit.OK)],
    ids=["in this process", "in the pool"],
)
def test_a_second_signal_hurries(tmp_path: Path, options: tuple[str, ...], code: Exit) -> None:
    with Serving(tmp_path, *options, HOLDFAST_DRAIN="10m") as serving:
        serving.listening()
        task_id = serving.apply("slow", "forever").json["taskId"]
        until(lambda: running(serving), "it runs", seconds=BOUND_SECONDS)
        serving.signal()
        serving.until_said("drains")
        serving.signal()
        assert serving.ended() == code
    [task] = stored(serving.store)
    assert (task.id, task.status, task.lease) == (task_id, Status.PENDING, None)


# -- who may come in


def test_without_tokens_loopback_alone_is_served_with_a_token_for_once(tmp_path: Path) -> None:
    with Serving(tmp_path) as serving:
        serving.listening()
        assert "valid while this process runs" in serving.said()
        assert serving.said().count("hf_") == 1
        assert serving.ask("GET", "/internal/workers", token=None).status == 401
        assert serving.ask("GET", "/internal/workers").status == 200


@pytest.mark.parametrize("empty", [False, True])
def test_without_tokens_another_address_is_refused(tmp_path: Path, empty: bool) -> None:
    settings = {}
    if empty:
        path, _ = token_file(tmp_path, roles=())
        settings["HOLDFAST_TOKENS"] = str(path)
    with Serving(tmp_path, "--host", "0.0.0.0", **settings) as serving:
        assert serving.ended() == Exit.INVALID
        [line] = serving.said().splitlines()
        assert line.endswith("[no-tokens]")
        assert "holdfast tokens create NAME --role admin" in line


def test_with_tokens_any_address_is_served_and_none_is_printed(tmp_path: Path) -> None:
    path, [text] = token_file(tmp_path)
    with Serving(tmp_path, "--host", "0.0.0.0", HOLDFAST_TOKENS=str(path)) as serving:
        serving.listening()
        serving.url = serving.url.replace("0.0.0.0", "127.0.0.1")
        assert "hf_" not in serving.said()
        assert serving.ask("GET", "/internal/workers", token=text).status == 200


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("", False),
        ("no such name", False),
    ],
)
def test_loopback_is_what_cannot_be_reached_from_elsewhere(host: str, is_so: bool) -> None:
    assert serve.is_loopback(host) is is_so


def test_a_file_of_tokens_that_is_not_there_is_told(tmp_path: Path) -> None:
    settings = load(tokens=tmp_path / "nowhere.json")
    with pytest.raises(InvalidSetting, match="there is no such file"):
        serve.one_time_token(settings, "127.0.0.1", now=0.0)


def test_a_one_time_token_is_an_admins_and_another_each_time() -> None:
    made = [serve.one_time_token(load(), "127.0.0.1", now=0.0) for _ in range(2)]
    (one, text), (_, other) = [pair for pair in made if pair is not None]
    assert one.role is tk.Role.ADMIN
    assert text != other
    assert tk.Tokens([one]).check(text, now=1.0) is one


def test_the_address_is_told_as_one_can_use_it() -> None:
    with serve.bind("127.0.0.1", 0) as bound:
        assert serve.url_of(bound) == f"http://127.0.0.1:{bound.getsockname()[1]}"
    assert serve.url_at("::1", 8080) == "http://[::1]:8080"


def test_an_address_that_is_taken_is_told_before_anything_begins(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Serving(tmp_path, "--port", str(port)) as serving:
            assert serving.ended() == Exit.INVALID
            assert "[cannot-bind]" in serving.said()
            assert not (tmp_path / "tasks.db").exists()


def test_what_only_this_process_sees_is_not_offered_to_others(tmp_path: Path) -> None:
    with Serving(tmp_path, "--processes", "1", HOLDFAST_STORE="memory://") as serving:
        assert serving.ended() == Exit.STORE
        assert "in the memory of this process" in serving.said()


@pytest.mark.parametrize("command", [("serve", "app:app"), ("tokens", "list")])
def test_without_the_extra_it_says_how_to_get_it(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == Exit.FAILED
    assert "pip install 'holdfast-engine[server]' [not-installed]" in result.stderr


# -- what a caller may not do


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Serving(tmp_path_factory.mktemp("serve"), "--no-workers") as serving:
        serving.listening()
        yield serving.url


def test_a_head_that_never_ends_is_cut_off(url: str) -> None:
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port or 0), timeout=BOUND_SECONDS) as line:
        line.sendall(b"GET /livez HTTP/1.1\r\nHost: here\r\n")
        try:
            for _ in range(1000):
                line.sendall(b"X-Long: " + b"x" * 4096 + b"\r\n")
        except OSError:
            return  # it has hung up
        answer = line.recv(100)
    assert answer.startswith(b"HTTP/1.1 400"), answer


@pytest.mark.parametrize(
    ("begun", "bound_by"),
    [
        (b"", "FIRST_BYTE_SECONDS"),
        (b"\r\n\r\n", "FIRST_BYTE_SECONDS"),
        (b"GET /livez HT", "HEAD_SECONDS"),
        (b"POST /api/tasks HTTP/1.1\r\nHost: a\r\n", "HEAD_SECONDS"),
        (b"POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", "ARRIVE_SECONDS"),
    ],
)
async def test_a_request_that_does_not_arrive_is_not_waited_for(
    idle: Served, monkeypatch: pytest.MonkeyPatch, begun: bytes, bound_by: str
) -> None:
    for name in ("FIRST_BYTE_SECONDS", "HEAD_SECONDS", "ARRIVE_SECONDS"):
        monkeypatch.setattr(protocol, name, 0.05 if name == bound_by else 3600.0)
    up, asked, urged = asyncio.Event(), asyncio.Event(), asyncio.Event()
    bound = serve.bind("127.0.0.1", 0)
    host, port = bound.getsockname()
    serving = asyncio.create_task(
        serve.answer(idle.service, bound, stop=asked, stop_now=urged, on_listening=up.set)
    )
    async with asyncio.timeout(BOUND_SECONDS):
        await up.wait()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(begun)
        with suppress(ConnectionResetError):  # before it has read what came
            assert not (await reader.read()).startswith(b"HTTP/1.1 2")
        writer.close()
        asked.set()
        await serving


def test_a_tokens_file_that_others_may_read_keeps_the_service_from_starting(
    tmp_path: Path,
) -> None:
    path, _ = token_file(tmp_path)
    path.chmod(0o644)
    with Serving(tmp_path, HOLDFAST_TOKENS=str(path)) as serving:
        assert serving.ended() == Exit.INVALID
        [line] = serving.said().splitlines()
        assert "mode 0644" in line
        assert line.endswith("[invalid-setting]")
