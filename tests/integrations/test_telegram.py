"""Telegram's messages and ours, and the settings of the bot (Q13)."""

import json
import logging
import re
import textwrap
import traceback
from pathlib import Path
from typing import Any

import msgspec
import msgspec.structs
import pytest

from holdfast import Context, Holdfast, Permanent
from holdfast.domain import notification
from holdfast.domain.errors import NotJson
from holdfast.domain.notification import Delivery
from holdfast.domain.task.events import NAMES, TaskCompleted
from holdfast.errors import InvalidSetting, UrlRefused
from holdfast.integrations import telegram
from holdfast.integrations.telegram import Reply, TelegramMessage
from holdfast.notify.chat import ChatBot
from holdfast.settings import Settings, load
from tests.support.telegram_api import update

TOKEN = "4711:Token-Of_These_Tests-0123456789abcdef"
SECRET = "secret-of-these-tests_1"
BOT: dict[str, Any] = {
    "telegram_token": TOKEN,
    "telegram_secret": SECRET,
    "telegram_task": "chat.answer",
}


def told(result: Any = None, *, event: str = "TaskCompleted", **data: Any) -> Delivery:
    body = msgspec.json.encode({"taskId": "task-1", "result": result} | data)
    return Delivery(
        to=telegram.TELEGRAM, url="telegram:-47/11", event=event, at=0.0, data=msgspec.Raw(body)
    )


def text_of(*given: Any, **more: Any) -> str:
    text = msgspec.json.decode(telegram.answer(told(*given, **more)))["text"]
    assert isinstance(text, str)
    return text


# -- what comes


def read(given: Any) -> TelegramMessage | None:
    return telegram.read(json.dumps(given).encode())


def test_a_text_message_is_read() -> None:
    message = read(update("hello", number=5, chat=-1001, message=8))
    assert message == TelegramMessage(
        text="hello",
        chat_id=-1001,
        message_id=8,
        user_id=4711,
        user_name="ann",
        language_code="en",
        update_id=5,
    )
    assert (message.tenant, message.key) == ("telegram:-1001", "telegram:5")
    assert str(message.reply) == "telegram:-1001/8"
    assert Reply.parse(str(message.reply)) == message.reply


def test_a_user_without_a_name_is_read() -> None:
    nameless: dict[str, Any] = {"from": {"id": 5, "is_bot": False}}
    message = read(update("hello", **nameless))
    assert message is not None
    assert (message.user_id, message.user_name, message.language_code) == (5, None, None)
    assert "userName" not in msgspec.to_builtins(message)


@pytest.mark.parametrize(
    "given",
    [
        update(None, sticker={"emoji": "x"}),
        update(None, new_chat_members=[{"id": 5}]),
        {"update_id": 1, "edited_message": update("hello")["message"]},
        {"update_id": 1, "channel_post": update("hello")["message"]},
        {"update_id": 1, "callback_query": {"id": "5", "data": "x"}},
        {"update_id": 1, "message": "hello"},
        {"update_id": 1, "message": None},
        {"update_id": 1},
        {"update_id": "1", "message": update("hello")["message"]},
        update("hello", number=2**63),
        update("hello", chat=-(2**63) - 1),
        {"update_id": 1, "message": update("hello")["message"] | {"from": None}},
        update("hello") | {"update_id": 1.5},
        {},
        [],
        None,
        "hello",
        0,
    ],
)
def test_whatever_is_no_new_text_message_is_none(given: Any) -> None:
    assert read(given) is None


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        f'{{"update_id": 1, "x": {DEEP}}}',
        DEEP,
        '{"update_id": 1e400}',
        f'{{"update_id": {"9" * 5_000}}}',
        f'{{"update_id": 1, {",".join(f"{json.dumps(str(n))}: {n}" for n in range(3_000))}}}',
    ],
    ids=["deep inside", "deep", "infinite", "long", "wide"],
)
def test_what_is_odd_but_may_be_json_is_none(body: str) -> None:
    assert telegram.read(body.encode()) is None


@pytest.mark.parametrize("body", ["", "hello", "{", "[}", '{"update_id": 1} x', "\xff", "{'a': 1}"])
def test_what_is_no_json_is_told(body: str) -> None:
    with pytest.raises(NotJson):
        telegram.read(body.encode("latin-1"))


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (rb"a\u0000b", "a\N{REPLACEMENT CHARACTER}b"),
        (rb"a\ud83d", "a\N{REPLACEMENT CHARACTER}"),
        (rb"\uDE00\ud83d", "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (rb"\ud83d\ud83d\ude00", "\N{REPLACEMENT CHARACTER}😀"),
        (rb"\ud83d\ude00 \u00e4", "😀 ä"),
        (rb"C:\\u0000 \\\\ud83d \"", r"C:\u0000 \\ud83d " + '"'),
        (b"a\xed\xa0\xbdb", "a" + "\N{REPLACEMENT CHARACTER}" * 3 + "b"),
        ("ä😀".encode(), "ä😀"),
    ],
)
def test_what_no_store_can_keep_is_replaced_and_the_rest_is_as_it_was(
    escaped: bytes, text: str
) -> None:
    body = json.dumps(update("TEXT")).encode()
    message = telegram.read(body.replace(b"TEXT", escaped))
    assert message is not None
    assert message.text == text


def test_a_name_that_no_store_can_keep_costs_no_message() -> None:
    odd: dict[str, Any] = {"from": {"id": 5, "username": "a\0b", "language_code": "\ud800"}}
    message = read(update("hello", **odd))
    assert message is not None
    assert (message.user_name, message.language_code) == ("a�b", "�")


def test_of_a_field_that_is_named_twice_the_last_one_counts() -> None:
    body = json.dumps(update("hello")).replace('"update_id": 1', '"update_id": 1, "update_id": 2')
    message = telegram.read(body.encode())
    assert message is not None
    assert message.update_id == 2


# -- what goes


def test_an_answer_names_the_chat_and_the_message_and_how_nothing_is_to_be_read() -> None:
    assert msgspec.json.decode(telegram.answer(told("<b>*hi*</b>"))) == {
        "chat_id": -47,
        "text": "<b>*hi*</b>",
        "reply_parameters": {"message_id": 11, "allow_sending_without_reply": True},
    }


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is\n", "as it is\n"),
        ({"text": "this", "answer": "not this"}, "this"),
        ({"answer": "that", "sources": [1]}, "that"),
        ({"text": 5, "answer": "that"}, "that"),
        ({"text": None, "at": 7}, '{"text":null,"at":7}'),
        ([1, {"a": "ä"}], '[1,{"a":"ä"}]'),
        (0, "0"),
        (False, "false"),
        (None, "Done (task task-1)."),
        ("", "Done (task task-1)."),
        (" \n ", "Done (task task-1)."),
        ({"text": ""}, "Done (task task-1)."),
    ],
)
def test_a_result_is_told_as_text(result: Any, text: str) -> None:
    assert text_of(result) == text


def test_a_result_that_was_too_long_to_bring_along_is_told_of() -> None:
    assert text_of(None, resultOmitted=True).startswith("Done; the result is too long")


@pytest.mark.parametrize(
    "kind", [kind for kind in notification.OUTCOMES if kind is not TaskCompleted]
)
def test_every_other_end_is_a_sentence_with_the_task_and_without_the_cause(kind: type) -> None:
    text = text_of(event=NAMES[kind], error={"message": "hunter2"}, reason="hunter3")
    assert text.startswith("This ")
    assert text.endswith("(task task-1).")
    assert "hunter" not in text


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("a" * 4096, "a" * 4096),
        ("a" * 4097, "a" * 4095 + "…"),
        ("😀" * 2048, "😀" * 2048),
        ("😀" * 2049, "😀" * 2047 + "…"),  # two units each: no half of one is left
        ("a" + "😀" * 2048, "a" + "😀" * 2047 + "…"),
        ("ä" * 5000, "ä" * 4095 + "…"),
    ],
)
def test_a_long_text_is_cut_where_telegram_would_refuse_it(text: str, short: str) -> None:
    assert text_of(text) == short
    assert len(short.encode("utf-16-le")) <= 2 * 4096


@pytest.mark.parametrize("text", ["telegram:", "telegram:x/1", "telegram:1", "https://a.b/c"])
def test_a_delivery_to_no_chat_is_given_up(text: str) -> None:
    with pytest.raises(Permanent, match="no chat"):
        Reply.parse(text)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (400, "does not take this message"),
        (400, "supergroup"),
        (401, "HOLDFAST_TELEGRAM_TOKEN"),
        (404, "_TOKEN"),
    ],
)
def test_what_no_second_attempt_would_mend_waits_for_a_person(status: int, says: str) -> None:
    with pytest.raises(Permanent, match=says):
        telegram.judge(status)


def test_a_chat_that_wants_nothing_of_the_bot_ends_the_delivery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert telegram.judge(403) == {"status": 403, "delivered": False}
    [line] = caplog.records
    assert (line.levelno, "403" in line.getMessage()) == (logging.INFO, True)


@pytest.mark.parametrize("status", [200, 429, 500, 502])
def test_what_telegram_means_as_everybody_does_is_judged_as_everywhere(status: int) -> None:
    assert telegram.judge(status) is None


# -- who may name a chat


async def test_a_chat_is_no_callback_that_anybody_can_name(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks.toml"
    hooks.write_text(f'[callbacks]\nsecret = "whsec_{"A" * 40}"\n')
    hooks.chmod(0o600)
    app = Holdfast("memory://", webhooks=hooks, **BOT)

    @app.task("chat.answer")
    async def answer(ctx: Context, text: str) -> str:
        return text

    async with app:
        await answer.submit("x", callback="https://hooks.example.com/")
        for url in ("telegram:4711/17", "TELEGRAM:4711/17", "telegram://4711/17"):
            with pytest.raises(UrlRefused):
                await answer.submit("x", callback=url)
            with pytest.raises(UrlRefused):
                await answer.submit_many(["x"], callback=url)
            with pytest.raises(UrlRefused):
                answer.on("x", callback=url)


# -- the settings


def bot_of(**settings: Any) -> ChatBot | None:
    return Holdfast("memory://", **settings).bot


def test_without_settings_there_is_no_bot() -> None:
    assert bot_of() is None
    assert bot_of(telegram_api="https://example.com") is None


def test_a_bot_has_its_address_and_shows_no_secret() -> None:
    bot = bot_of(**BOT)
    assert bot is not None
    assert bot.address() == f"https://api.telegram.org/bot{TOKEN}/sendMessage"
    assert (bot.task, bot.secret) == ("chat.answer", SECRET)
    app = Holdfast("memory://", **BOT)
    for shown in (repr(bot), str(bot), repr(app.settings), app.settings.model_dump_json()):
        assert TOKEN not in shown
        assert SECRET not in shown


@pytest.mark.parametrize("missing", list(BOT))
@pytest.mark.parametrize("value", [None, ""])
def test_a_bot_with_a_part_missing_is_refused_by_its_name(missing: str, value: str | None) -> None:
    with pytest.raises(InvalidSetting, match="needs all of") as refused:
        bot_of(**BOT | {missing: value})
    assert refused.value.name == f"HOLDFAST_{missing.upper()}"
    assert_untold(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("telegram_token", "no-token-but-hunter2"),
        ("telegram_token", f"{TOKEN}/../hunter2"),
        ("telegram_token", f"{TOKEN}?hunter2"),
        ("telegram_token", ["hunter2"]),
        ("telegram_secret", "hunter2"),
        ("telegram_secret", "hunter2" + "x" * 250),
        ("telegram_secret", "hunter2 with blanks in it"),
        ("telegram_secret", {"hunter2": 1}),
    ],
)
def test_a_wrong_secret_is_refused_and_not_shown(name: str, value: Any) -> None:
    with pytest.raises(InvalidSetting) as refused:
        bot_of(**BOT | {name: value})
    assert refused.value.name == f"HOLDFAST_{name.upper()}"
    assert_untold(refused.value)


def assert_untold(error: BaseException) -> None:
    """Not in its text, nor in what a traceback shows."""
    shown = "".join(traceback.format_exception(error))
    assert not any(secret in shown for secret in ("hunter2", TOKEN, SECRET))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8081",
        "http://api.telegram.org",
        "https://10.0.0.1",
        "https://a.b/?x=1",
        "x",
    ],
)
def test_an_api_that_nothing_may_be_sent_to_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="HOLDFAST_TELEGRAM_API"):
        bot_of(**BOT, telegram_api=url)


def test_an_api_of_ones_own_is_allowed_like_any_other_address() -> None:
    bot = bot_of(**BOT, telegram_api="http://127.0.0.1:8081/", webhook_allow="127.0.0.1:8081")
    assert bot is not None
    assert bot.address() == f"http://127.0.0.1:8081/bot{TOKEN}/sendMessage"


def test_the_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in BOT.items():
        monkeypatch.setenv(f"HOLDFAST_{name.upper()}", value)
    settings = load()
    assert settings.telegram_token is not None
    assert settings.telegram_token.get_secret_value() == TOKEN
    assert bot_of() is not None


def test_the_document_has_a_task_that_takes_messages_and_settings_that_exist() -> None:
    document = (Path(__file__).parents[2] / "docs" / "telegram.md").read_text(encoding="utf-8")
    [code] = re.findall(r"(?s)```python\n(.*?)```", document)
    names: dict[str, Any] = {}
    exec(textwrap.dedent(code), names)
    codec = names["app"].registry.find("chat.answer").payload
    message = read(update("hello"))
    assert message is not None
    assert codec.decode(codec.encode(msgspec.to_builtins(message))) == message
    for name in set(re.findall(r"HOLDFAST_([A-Z_]+)", document)) - {"CONFIG"}:
        assert name.lower() in Settings.model_fields
    for field in msgspec.structs.fields(TelegramMessage):
        assert f"`{field.encode_name}`" in document


def test_the_event_of_a_failure_has_its_sentence() -> None:
    assert "waits for a person" in text_of(event="TaskFailed")
