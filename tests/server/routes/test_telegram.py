"""Telegram as a way in, over real connections: updates come in, answers go out to a stand-in of the
Bot API (Q13)."""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Context, Holdfast, Permanent
from holdfast.domain import notification
from holdfast.domain.task.state import Status
from holdfast.integrations.telegram import TelegramMessage
from holdfast.testing.clock import ManualClock
from tests.support.server.listener import Listening, listening
from tests.support.server.wire import JSON, send
from tests.support.telegram_api import (
    BLOCKED,
    BROKEN,
    FLOOD,
    SECRET_HEADER,
    Refusal,
    TelegramApi,
    update,
)
from verify.servers.poll import until

TOKEN = "4711:Token-Of_These_Tests-0123456789abcdef"
SECRET = "secret-of-these-tests_1"
PATH = "/api/telegram/webhook"
BOUND_SECONDS = 60.0
MOVED = Refusal(400, "Bad Request: group chat was upgraded to a supergroup chat")


@dataclass
class World:
    """A bot that answers ``hello`` with ``you said hello``, unless ``replies`` has it otherwise."""

    api: TelegramApi
    served: Listening
    clock: ManualClock | None  # None: the real one
    replies: dict[str, Any]
    calls: list[TelegramMessage] = field(default_factory=list)

    def client(self) -> httpx.Client:
        url, bearer = self.served.url, self.served.bearer()
        return httpx.Client(base_url=url, headers=bearer, timeout=BOUND_SECONDS)

    def ask(self, method: str, path: str, **sent: Any) -> Any:
        with self.client() as client:
            answer = client.request(method, path, **sent)
        assert answer.is_success, answer.text
        return answer.json()

    def tasks(self, kind: str = "chat.answer") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", "/api/tasks", params={"type": kind})["tasks"]
        return found

    def deliveries(self) -> list[dict[str, Any]]:
        return self.tasks(notification.TYPE)

    def until_told(self, status: Status, count: int = 1) -> list[dict[str, Any]]:
        """So many deliveries are there, and each of them is that far."""

        def found() -> list[dict[str, Any]]:
            all_of_them = self.tick(0.05)
            return all_of_them if [one["status"] for one in all_of_them] == [status] * count else []

        return until(found, f"{count} deliveries that are {status}", seconds=BOUND_SECONDS)

    def until_asked(self, times: int) -> None:
        """The Bot API was asked so often. Time passes fast until then."""

        def asked() -> bool:
            self.tick(0.5)
            return self.api.attempts >= times

        until(asked, f"{times} attempts", seconds=BOUND_SECONDS)

    def tick(self, seconds: float) -> list[dict[str, Any]]:
        """All deliveries; time stands still while one of them is under way."""
        found = self.deliveries()
        if self.clock is not None and Status.RUNNING not in [one["status"] for one in found]:
            self.clock.advance(seconds)
        return found


def chatting(app: Holdfast, replies: dict[str, Any], calls: list[TelegramMessage]) -> None:
    @app.task("chat.answer")
    async def answer(ctx: Context, message: TelegramMessage) -> Any:
        calls.append(message)
        reply = replies.get(message.text, f"you said {message.text}")
        if isinstance(reply, Exception):
            raise reply
        return await reply(ctx) if callable(reply) else reply


@contextmanager
def world(
    api: TelegramApi,
    store: str = "memory://",
    *,
    clock: ManualClock | None = None,
    **settings: Any,
) -> Iterator[World]:
    given: dict[str, Any] = {
        "telegram_token": TOKEN,
        "telegram_secret": SECRET,
        "telegram_task": "chat.answer",
        "telegram_api": api.url,
        "webhook_allow": f"127.0.0.1:{api.port}",
        "webhook_timeout": 30.0,  # who stands still for a while is not asked twice for it
        "lease": 600.0,  # time passes fast while a test waits
    }
    replies, calls = dict[str, Any](), list[TelegramMessage]()
    app = Holdfast(store, clock=clock, **given | settings)
    chatting(app, replies, calls)
    with listening(app) as served:
        api.webhook = (f"{served.url}{PATH}", SECRET)
        yield World(api, served, clock, replies, calls)


@pytest.fixture
def api() -> Iterator[TelegramApi]:
    with TelegramApi(TOKEN) as one:
        yield one


@pytest.fixture
def bot(api: TelegramApi) -> Iterator[World]:
    with world(api) as one:
        yield one


@pytest.fixture
def timed(api: TelegramApi) -> Iterator[World]:
    """Its time passes while a test waits for something."""
    with world(api, clock=ManualClock()) as one:
        yield one


# -- in, and out again


def test_a_message_becomes_a_task_and_its_result_one_answer(bot: World) -> None:
    heard = bot.api.send(update("hello", number=7, chat=-100, message=3))
    [task] = bot.tasks()
    assert (heard.status_code, heard.json()) == (200, {"ok": True, "taskId": task["taskId"]})
    assert task["tenantId"] == "telegram:-100"
    bot.until_told(Status.COMPLETED)
    [sent] = bot.api.sent
    assert sent.body == {
        "chat_id": -100,
        "text": "you said hello",
        "reply_parameters": {"message_id": 3, "allow_sending_without_reply": True},
    }
    [message] = bot.calls
    assert (message.text, message.user_id, message.user_name) == ("hello", 4711, "ann")
    assert bot.ask("GET", f"/api/tasks/{task['taskId']}")["key"] == "telegram:7"


def test_an_update_that_comes_again_is_the_same_task_and_is_answered_once(bot: World) -> None:
    first = bot.api.send(update("hello"))
    bot.until_told(Status.COMPLETED)
    again = bot.api.send(update("hello"))
    assert again.json() == first.json()
    bot.api.send(update("something else", number=2))
    assert [one.text for one in bot.api.got(2)] == ["you said hello", "you said something else"]
    bot.until_told(Status.COMPLETED, 2)
    assert len(bot.tasks()) == len(bot.calls) == len(bot.api.sent) == 2


def test_the_messages_of_a_chat_are_answered_one_after_the_other(bot: World) -> None:
    first = Gate(bot.served)
    bot.replies["first"] = first.passed
    for number, (text, chat) in enumerate([("first", 1), ("second", 1), ("elsewhere", 2)]):
        assert bot.api.send(update(text, number=number, chat=chat)).is_success
    bot.api.got(1)
    assert [one.text for one in bot.api.sent] == ["you said elsewhere"]
    assert "second" not in [one.text for one in bot.calls]
    first.open()
    bot.api.got(3)
    assert [one.text for one in bot.calls][2:] == ["second"]


class Gate:
    """Shut until it is opened, from any thread."""

    def __init__(self, served: Listening) -> None:
        self._loop, self._opened = served.loop, threading.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self, ctx: Context) -> str:
        await self._loop.run_in_executor(None, self._opened.wait, BOUND_SECONDS)
        return "through"


def test_a_suspended_task_is_told_of_and_so_is_its_end_once_it_was_resumed(bot: World) -> None:
    bot.replies["hello"] = Permanent("no such shelf, password=hunter2")
    task_id = bot.api.send(update("hello")).json()["taskId"]
    [sorry] = bot.api.got(1)
    assert sorry.text == f"This could not be done yet, and waits for a person (task {task_id})."
    bot.replies["hello"] = {"answer": "found it"}
    bot.ask("POST", f"/internal/tasks/suspended/{task_id}/resume")
    _, found = bot.api.got(2)
    assert (found.text, found.chat_id) == ("found it", sorry.chat_id)
    assert found.body["reply_parameters"] == sorry.body["reply_parameters"]
    bot.until_told(Status.COMPLETED, 2)
    assert len(bot.api.sent) == 2


def test_a_task_that_is_given_up_is_told_of(bot: World) -> None:
    bot.replies["hello"] = Permanent("no")
    task_id = bot.api.send(update("hello")).json()["taskId"]
    bot.api.got(1)
    bot.ask("POST", f"/internal/tasks/suspended/{task_id}/discard")
    assert bot.api.got(2)[1].text == f"This was given up (task {task_id})."


# -- an API that does not take it


def test_an_answer_arrives_once_when_the_api_is_back() -> None:
    api = TelegramApi(TOKEN)  # nobody listens there yet
    try:
        with world(api, clock=ManualClock()) as bot:
            api.send(update("hello"))
            [waiting] = bot.until_told(Status.RETRYING)
            assert "could not be connected to" in waiting["error"]["message"]
            api.up()
            bot.until_asked(1)
            bot.until_told(Status.COMPLETED)
            assert [one.text for one in api.sent] == ["you said hello"]
            assert len(bot.tasks()) == len(bot.calls) == len(api.sent) == 1
    finally:
        api.close()


def test_an_api_that_breaks_is_tried_again(timed: World) -> None:
    timed.api.refusals = [BROKEN]
    timed.api.send(update("hello"))
    timed.until_told(Status.RETRYING)
    assert timed.api.sent == []
    timed.until_asked(2)
    timed.until_told(Status.COMPLETED)
    assert len(timed.api.sent) == 1


def test_an_api_that_is_asked_too_much_is_left_alone_for_as_long_as_it_says(timed: World) -> None:
    timed.api.refusals = [FLOOD]
    timed.api.send(update("hello"))
    timed.until_asked(1)
    [waiting] = timed.until_told(Status.PENDING)
    task = timed.ask("GET", f"/api/tasks/{waiting['taskId']}")
    due, told = (datetime.fromisoformat(task[name]) for name in ("dueAt", "updatedAt"))
    assert 7 <= (due - told).total_seconds() < 10  # not all of them at once
    timed.until_asked(2)
    timed.until_told(Status.COMPLETED)
    assert len(timed.api.sent) == 1


def test_an_answer_to_who_has_blocked_the_bot_ends_and_leaves_nothing_to_mend(
    bot: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    bot.api.refusals = [BLOCKED]
    bot.api.send(update("hello"))
    [ended] = bot.until_told(Status.COMPLETED)
    told = bot.ask("GET", f"/api/tasks/{ended['taskId']}")
    assert told["result"] == {"status": 403, "delivered": False}
    assert (bot.api.sent, bot.api.attempts) == ([], 1)
    assert bot.ask("GET", "/internal/tasks/suspended")["tasks"] == []
    [line] = [one for one in caplog.records if "403" in one.getMessage()]
    assert line.levelno == logging.INFO


def test_what_waits_for_a_person_can_be_sent_when_it_was_resumed(bot: World) -> None:
    bot.api.refusals = [MOVED]
    bot.api.send(update("hello"))
    [parked] = bot.until_told(Status.FAILED)
    assert "does not take this message" in parked["error"]["message"]
    assert bot.tasks()[0]["status"] == Status.COMPLETED  # the work is done, only the news is not
    bot.ask("POST", f"/internal/tasks/suspended/{parked['taskId']}/resume")
    assert bot.api.got(1)[0].text == "you said hello"


# -- who is let in


@pytest.mark.parametrize("secret", ["", "wrong", SECRET[:-1], SECRET + "x", SECRET.upper()])
def test_whoever_does_not_know_the_secret_is_refused(bot: World, secret: str) -> None:
    bot.api.webhook = (bot.api.webhook[0], secret)
    refused = bot.api.send(update("hello"))
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert refused.headers["content-type"] == "application/problem+json"
    assert bot.tasks() == []
    [entry] = bot.ask("GET", "/internal/audit")["entries"]
    assert (entry["actor"], entry["refused"]) == ("anonymous", "unauthenticated")
    assert (entry["command"], entry["origin"]) == (f"POST {PATH}", "127.0.0.1")


def test_no_token_of_ours_is_a_secret_of_telegrams(bot: World) -> None:
    url = bot.api.webhook[0]
    ours = bot.served.bearer("admin")
    refused = httpx.post(url, json=update("hello"), headers=ours, timeout=BOUND_SECONDS)
    assert refused.status_code == 401
    assert bot.tasks() == []


def test_whoever_guesses_is_slowed_down_and_telegram_is_not(timed: World) -> None:
    url = timed.api.webhook[0]
    timed.api.webhook = (url, "wrong")
    answers = [timed.api.send(update("hello")) for _ in range(5)]
    assert [one.status_code for one in answers] == [401, 401, 429, 429, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    said = "too many wrong tokens or secrets have come from this address; try again later"
    assert answers[-1].json()["detail"] == said
    timed.api.webhook = (url, SECRET)
    assert timed.api.send(update("hello")).status_code == 200


def test_a_stranger_is_refused_before_the_body_is_read(bot: World) -> None:
    """It is never sent: whoever waited for it would answer nothing."""
    head = [f"POST {PATH} HTTP/1.1", "host: here", "content-length: 50000", JSON]
    told = send(bot.served, "\r\n".join([*head, "connection: close", "", ""]).encode())
    assert (told.status, told.code) == (401, "unauthenticated")


def test_without_a_bot_there_is_no_such_place(api: TelegramApi) -> None:
    nothing: dict[str, Any] = {
        "telegram_token": None,
        "telegram_secret": None,
        "telegram_task": None,
    }
    with world(api, **nothing) as bot:
        answer = bot.api.send(update("hello"))
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


# -- what no task comes of


def test_updates_that_are_no_text_are_taken_and_left_out(bot: World) -> None:
    edited = {"update_id": 2, "edited_message": update("hello")["message"]}
    for given in (update(None, sticker={"emoji": "x"}), edited, {"update_id": 3}):
        heard = bot.api.send(given)
        assert (heard.status_code, heard.json()) == (200, {"ok": True, "ignored": True})
    assert bot.tasks() == []


def post(bot: World, body: bytes, kind: str = "application/json") -> httpx.Response:
    headers = {SECRET_HEADER: SECRET, "content-type": kind}
    return httpx.post(bot.api.webhook[0], content=body, headers=headers, timeout=BOUND_SECONDS)


@pytest.mark.parametrize("escape", [rb"\u0000", rb"\ud83d", rb"\ude00"])
def test_a_text_that_cannot_be_kept_as_it_is_is_cleaned_and_answered(
    bot: World, escape: bytes
) -> None:
    heard = post(bot, json.dumps(update("hel-lo")).encode().replace(b"-", escape))
    assert heard.status_code == 200
    assert "taskId" in heard.json()
    assert bot.api.got(1)[0].text == "you said hel\N{REPLACEMENT CHARACTER}lo"


@pytest.mark.parametrize(
    "body",
    [
        *["null", "[]", '"hello"', "{}", '{"update_id": "x"}', '{"update_id": 1, "update_id": 2}'],
        '{"update_id": 1, "message": {"text": "\\u0000\\ud800"}}',
        json.dumps(update("hello", number=10**30)),
        json.dumps(update("hello", chat=10**30)),
        "[" * 5_000 + "]" * 5_000,
        f"[{','.join(['[]'] * 210_000)}]",
        json.dumps({"update_id": 1} | {str(number): 0 for number in range(30)}),
    ],
    ids=[*("null list text none wrong twice odd number chat deep wide names".split())],
)
def test_json_that_no_task_can_come_of_is_taken_once(bot: World, body: str) -> None:
    heard = post(bot, body.encode())
    assert (heard.status_code, heard.json()) == (200, {"ok": True, "ignored": True})
    assert bot.tasks() == []


def test_a_message_with_many_things_that_nobody_knows_yet_is_taken(bot: World) -> None:
    grown: dict[str, Any] = {f"new_{number}": {"since": "now"} for number in range(30)}
    assert "taskId" in bot.api.send(grown | update("hello", **grown)).json()


def test_what_is_no_json_is_refused(bot: World) -> None:
    for body in (b"", b"hello", b"{", json.dumps(update("hello")).encode() + b"}"):
        assert (post(bot, body).status_code, post(bot, body).json()["code"]) == (422, "not-json")
    assert post(bot, b"{}", "text/plain").status_code == 415
    assert post(bot, b" " * (8 * 1024 * 1024 + 1)).status_code == 413


def test_a_message_that_the_task_refuses_is_left_out_with_a_line(
    api: TelegramApi, caplog: pytest.LogCaptureFixture
) -> None:
    with world(api, payload_limit=150) as bot:
        heard = api.send(update("hello" * 50, number=9))
        assert (heard.status_code, heard.json()) == (200, {"ok": True, "ignored": True})
        assert bot.tasks() == []
    [line] = [one for one in caplog.records if "left out" in one.getMessage()]
    assert line.levelno == logging.WARNING
    assert "update 9" in line.getMessage()
    assert "hellohello" not in line.getMessage()


def test_another_text_under_a_known_number_is_left_out(bot: World) -> None:
    bot.api.send(update("hello"))
    assert bot.api.send(update("other")).json() == {"ok": True, "ignored": True}
    assert len(bot.tasks()) == 1


def test_the_longest_message_that_answers_the_longest_one_is_taken(bot: World) -> None:
    """As Telegram writes it, six bytes for a character: more than 64 kB."""
    links = [
        {"type": "text_link", "offset": n, "length": 1, "url": f"https://a.example/{'x' * 200}"}
        for n in range(100)
    ]
    long = update("я" * 4096, entities=links)
    long["message"]["reply_to_message"] = update("я" * 4096, entities=links)["message"]
    heard = bot.api.send(long)
    assert int(heard.request.headers["content-length"]) > 64 * 1024
    assert "taskId" in heard.json()


def test_while_nothing_is_taken_in_telegram_is_told_to_come_again(bot: World) -> None:
    bot.ask("POST", "/internal/queues/default/intake/pause")
    later = bot.api.send(update("hello"))
    assert (later.status_code, later.json()["code"]) == (503, "intake-paused")
    assert int(later.headers["retry-after"]) >= 1
    bot.ask("POST", "/internal/queues/default/intake/resume")
    assert "taskId" in bot.api.send(update("hello")).json()
    assert bot.api.got(1)[0].text == "you said hello"


@pytest.mark.parametrize("url", ["telegram:4711/17", "telegram:-100/1"])
def test_nobody_can_have_the_bot_write_to_a_chat_through_the_api(bot: World, url: str) -> None:
    message = {"text": "x", "chatId": 1, "messageId": 1, "userId": 1, "updateId": 1}
    work = {"type": "chat.answer", "payload": message, "callbackUrl": url}
    with bot.client() as client:
        for path, body in (("/api/workflows/apply", work), ("/api/tasks", {"tasks": [work]})):
            answer = client.post(path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "url-refused")
    assert bot.tasks() == []


# -- the token


def test_the_token_and_the_secret_are_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After all that can go wrong: not in the store, in a log, nor in an answer of the service."""
    caplog.set_level(logging.DEBUG)
    api = TelegramApi("4712:The-Token_Of_Some-Other_Bot-0123456789")
    try:
        with world(api, f"sqlite:///{tmp_path}/tasks.db", clock=ManualClock()) as bot:
            api.send(update("needle-in-hay"))
            bot.until_told(Status.RETRYING)  # it is down
            api.up()
            bot.until_asked(1)
            [parked] = bot.until_told(Status.FAILED)  # another's token
            assert "HOLDFAST_TELEGRAM_TOKEN" in parked["error"]["message"]
            api.webhook = (api.webhook[0], "wrong")
            api.send(update("hello"))
            seen = [*answers(bot), caplog.text, repr(bot.served.app.settings)]
        seen += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    finally:
        api.close()
    assert any("needle-in-hay" in one for one in seen[-3:]), "the store was not looked at"
    assert any("refused: POST" in one for one in seen), "no log was looked at"
    for one in seen:
        assert TOKEN not in one
        assert TOKEN.partition(":")[2] not in one
        assert SECRET not in one


def answers(bot: World) -> Iterator[str]:
    """Whatever can be read of a task, and of the service."""
    ids = [one["taskId"] for one in (*bot.tasks(), *bot.deliveries())]
    of_tasks = [f"/api/tasks/{one}{part}" for one in ids for part in ("", "/timeline", "/why")]
    of_all = ["tasks/stats", "tasks/suspended", "doctor", "audit", "queues", "alerts"]
    with bot.client() as client:
        for path in (*of_tasks, *(f"/internal/{one}" for one in of_all), "/metrics", "/readyz"):
            answer = client.get(path)
            assert answer.is_success, answer.text
            yield answer.text
