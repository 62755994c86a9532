"""Loaded by Schemathesis in its own process: what a run must not wait for, and what a refusal says.

The configuration lets some refusals pass whose reason no schema can tell; this check lets them pass
with that reason alone.
"""

from typing import Any

import schemathesis
from hypothesis import strategies as st

from holdfast.domain import names
from holdfast.domain.errors import InvalidName

UNSUITABLE = {  # why a request that fits the schema is refused
    "invalid-payload",  # by the task's own type
    "invalid-plan",
    "invalid-schedule",
    "invalid-input",
    "invalid-name",
    "not-json",
    "unknown-queue",  # none that a type or a worker has
    "url-refused",  # of a callback: nothing may be sent there
}
CLOSED = "intake-paused"  # a former request has paused that queue


def _is_name(text: str) -> bool:
    """Return whether the text is a valid name of every kind."""
    try:
        return all(names.check(kind, text) for kind in ("task type", "tenant", "plan"))
    except InvalidName:
        return False


# The document's pattern cannot say which characters are letters; its format stands for that.
_LETTERS = st.characters(categories=["Ll", "Lu", "Lo"])
schemathesis.openapi.format("name", st.text(_LETTERS, min_size=1, max_size=30).filter(_is_name))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Nothing waits for a result."""
    if case.operation.path == "/api/workflows/apply" and isinstance(case.body, dict):
        wait = case.body.get("waitSeconds", 20)
        if isinstance(wait, int | float) and not isinstance(wait, bool) and 0 <= wait <= 120:
            case.body["waitSeconds"] = 0


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """The worker stays, or a stream of events would have no end."""
    return not (case.operation.path.endswith("/drain") and "-" in str(case.path_parameters))


@schemathesis.check
def every_refusal_has_its_reason(ctx: Any, response: Any, case: Any) -> None:
    if response.status_code >= 500:
        assert response.json()["code"] == CLOSED, response.text
    if response.status_code == 422 and case.meta is not None:
        positive = case.meta.generation.mode.is_positive
        code = response.json()["code"]
        assert not positive or code in UNSUITABLE, response.text


@schemathesis.check
def every_answer_has_the_headers_of_all(ctx: Any, response: Any, case: Any) -> None:
    assert response.headers["x-content-type-options"] == ["nosniff"], response.headers
    assert response.headers["cache-control"] == ["no-store"], response.headers
    assert "default-src 'none'" in response.headers["content-security-policy"][0]
