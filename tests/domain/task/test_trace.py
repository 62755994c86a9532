"""What is shown of a task's trace."""

import pytest

from holdfast.domain.task.trace import is_traceparent, shown_trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"

OTHERS = [
    "",
    "trace-9",
    TRACE,
    PARENT.upper(),
    f"{PARENT}\n",
    f"{PARENT}-more",
    f"00-{'0' * 32}-b7ad6b7169203331-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"ff-{TRACE}-b7ad6b7169203331-01",
]


def test_of_a_traceparent_the_trace_is_shown() -> None:
    assert is_traceparent(PARENT)
    assert shown_trace(PARENT) == TRACE


@pytest.mark.parametrize("text", OTHERS)
def test_any_other_text_is_shown_as_it_is(text: str) -> None:
    assert not is_traceparent(text)
    assert shown_trace(text) == text


def test_no_trace_is_none() -> None:
    assert shown_trace(None) is None
    assert not is_traceparent(5)
