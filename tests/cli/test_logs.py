import logging

from holdfast.cli.logs import PlainFormatter

FORM = PlainFormatter("%(levelname)s %(name)s: %(message)s")


def record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("shop", logging.ERROR, "shop.py", 1, message, (), exc_info)


def test_a_message_stays_on_its_line() -> None:
    assert FORM.format(record("no\nINFO shop: all is well")) == (
        "ERROR shop: no\\nINFO shop: all is well"
    )


def test_a_traceback_keeps_its_lines_and_they_are_indented() -> None:
    try:
        raise ValueError("no\nINFO shop: all is well\n\n\x1b[31m")
    except ValueError as error:
        told = FORM.format(record("it failed", error))
    first, *rest = told.split("\n")
    assert first == "ERROR shop: it failed"
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in rest)
    assert "    INFO shop: all is well" in rest
    assert "\x1b" not in told
