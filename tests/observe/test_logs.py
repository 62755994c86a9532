"""Log lines: on one line each, without secrets, and with the stage that they come from."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from holdfast import Context, Holdfast
from holdfast.domain.redaction import USUAL, Redactor
from holdfast.errors import InvalidSetting
from holdfast.observe import logs
from holdfast.observe.logs import Format, Lines, PlainFormatter
from holdfast.testing.plugin import MakeEngine

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
STEERING = "\r\nINFO all is well\x1b[31m\x9b31m\u202e\u2028\x00\x7f"


class Book:
    """A logger of its own, and what it has written."""

    def __init__(self, format: Format, redactor: Redactor = USUAL) -> None:
        self.written = io.StringIO()
        self.log = logging.Logger("shop.orders")  # noqa: LOG001 - known to nobody else
        handler = Lines(self.written)
        handler.setFormatter(logs.formatter(format, redactor))
        self.log.addHandler(handler)

    @property
    def text(self) -> str:
        return self.written.getvalue()

    @property
    def line(self) -> dict[str, Any]:
        [only] = self.text.splitlines()
        told = json.loads(only)
        assert isinstance(told, dict)
        return told


@pytest.fixture(autouse=True)
def _structlog_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def console() -> Book:
    return Book("console")


@pytest.fixture
def machine() -> Book:
    return Book("json")


# -- JSON


def test_a_json_line_has_the_time_level_logger_and_event(machine: Book) -> None:
    machine.log.warning("order %d is late", 7)
    line = machine.line
    assert line.pop("ts").endswith("+00:00")
    assert line == {"level": "warning", "logger": "shop.orders", "event": "order 7 is late"}
    assert next(iter(machine.line)) == "ts"


def test_fields_are_added_and_take_no_place_of_ours(machine: Book) -> None:
    machine.log.info("paid", extra={"order": {"id": 7}, "event": "no", "level": "no", "ts": 0})
    line = machine.line
    assert (line["event"], line["level"], line["order"]) == ("paid", "info", {"id": 7})
    assert (line["event_"], line["level_"], line["ts_"]) == ("no", "no", 0)


def test_nothing_in_a_json_line_steers_a_terminal(machine: Book) -> None:
    machine.log.info("said %s", STEERING, extra={"who": STEERING, STEERING: 1, "half": "\ud800"})
    [line] = machine.text.split("\n")[:-1]
    assert line.isprintable()
    assert "\\u001b[31m" in line
    told = json.loads(line)
    assert (told["event"], told["who"]) == (f"said {STEERING}", STEERING)
    assert told["half"] == "\\ud800"


def test_an_exception_is_told_in_one_json_line(machine: Book) -> None:
    try:
        raise ValueError("no\nINFO all is well, password=hunter2")
    except ValueError:
        machine.log.exception("it failed")
    told = machine.line["exception"]
    assert told.startswith("Traceback (most recent call last):\n")
    assert told.endswith("ValueError: no\nINFO all is well, password=***")
    assert "hunter2" not in machine.text


def test_what_no_json_can_carry_is_told_as_text(machine: Book) -> None:
    machine.log.info(
        "odd", extra={"a": {1, 2}, "b": object, "c": float("nan"), "d": {(1, 2): 2**70}}
    )
    line = machine.line
    assert (line["a"], line["b"], line["c"]) == ([1, 2], "<class 'object'>", None)
    assert list(line["d"]) == ["(1, 2)"]


def test_the_lines_of_structlog_are_told_the_same_way(
    machine: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "getLogger", lambda _=None: machine.log)
    structlog.get_logger("shop").error("late %s", "by a day", order=7, token="hunter2")
    line = machine.line
    assert (line["event"], line["order"], line["token"]) == ("late by a day", 7, "***")


def test_a_structlog_that_was_set_up_is_left_alone() -> None:
    chosen = [structlog.processors.JSONRenderer()]
    structlog.configure(processors=chosen)
    Book("json")
    assert structlog.get_config()["processors"] is chosen


# -- both


@pytest.mark.parametrize("format", ["console", "json"])
def test_secrets_are_hidden_in_messages_fields_and_exceptions(format: Format) -> None:
    book = Book(format, Redactor(["pin"], [r"\d{3}-\d{2}-\d{4}"]))
    try:
        raise ValueError("no 123-45-6789 at db://u:hunter2@h")
    except ValueError:
        book.log.exception("for %s: Bearer hunter2", {"token": "hunter2"}, extra={"pin": "hunter2"})
    assert "hunter2" not in book.text
    assert "123-45-6789" not in book.text
    assert "db://u:***@h" in book.text


@pytest.mark.parametrize("format", ["console", "json"])
def test_a_line_that_cannot_be_made_tells_no_secret(
    format: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    book = Book(format)
    book.log.info("two %s %s\x1b[31m", "hunter2")  # noqa: PLE1206
    said = capsys.readouterr().err
    assert said.startswith("a log line of ")
    assert said.endswith(" could not be written: TypeError\n")
    assert "hunter2" not in said + book.text


@pytest.mark.parametrize("format", ["console", "json"])
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_users_own_lines_name_the_stage_they_come_from(
    format: Format, kind: str, app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    book = Book(format)
    if kind == "async":

        @app.task("charge")
        async def charge(ctx: Context) -> None:
            book.log.info("charging")
    else:

        @app.task("charge")
        def charge_plainly(ctx: Context) -> None:
            book.log.info("charging")

    engine = holdfast_engine(app)
    declared = app.registry.find("charge")
    assert declared is not None
    handle = await app.submit(declared, None, tenant="t-1", trace_id=PARENT)
    await engine.drain()
    book.log.info("outside")
    inside, outside = book.text.splitlines()
    fields = {
        "task": handle.id,
        "type": "charge",
        "stage": declared.stages[0].name,
        "attempt": 1,
        "tenant": "t-1",
        "trace": TRACE,
    }
    if format == "json":
        assert fields.items() <= json.loads(inside).items()
        assert json.loads(outside).keys() == {"ts", "level", "logger", "event"}
    else:
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        assert inside.endswith(f"INFO shop.orders: charging [{told}]")
        assert outside.endswith("INFO shop.orders: outside")


# -- console


def test_a_message_stays_on_its_line(console: Book) -> None:
    console.log.error("no%s", STEERING)
    [line] = console.text.split("\n")[:-1]
    assert line.isprintable()
    assert "no\\nINFO all is well\\x1b[31m\\x9b31m" in line


def test_a_traceback_keeps_its_lines_and_they_are_indented(console: Book) -> None:
    try:
        raise ValueError("no\nINFO shop: all is well\n\n\x1b[31m")
    except ValueError:
        console.log.exception("it failed")
    first, *rest = console.text.rstrip("\n").split("\n")
    assert first.endswith("ERROR shop.orders: it failed")
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in rest)
    assert "    INFO shop: all is well" in rest
    assert "\x1b" not in console.text


# -- setting up


def test_json_without_structlog_is_refused_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "structlog", None)
    monkeypatch.delitem(sys.modules, "holdfast.observe.json_logs", raising=False)
    with pytest.raises(InvalidSetting, match=r"HOLDFAST_LOG.*holdfast-engine\[server\]"):
        logs.formatter("json", USUAL)
    assert isinstance(logs.formatter("console", USUAL), PlainFormatter)


@pytest.mark.parametrize(("set_up", "ours"), [("", True), ("logging.basicConfig(); ", False)])
def test_logs_go_to_stderr_unless_logging_is_set_up_already(set_up: str, ours: bool) -> None:
    code = (
        f"import logging; {set_up}from holdfast.observe import logs; "
        "logs.configure('json'); logging.getLogger('shop').warning('late')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    assert run.stderr.startswith("{") is ours
