"""The routes of the state machines."""

import pytest

from tests.server.conftest import Served


@pytest.mark.parametrize(
    ("query", "kind", "has"),
    [
        ("", "image/svg+xml", "<svg"),
        ("format=mermaid", "text/vnd.mermaid", "stateDiagram"),
        ("format=text&live=true", "text/plain", "PENDING"),
        ("of=plans&live=true", "image/svg+xml", "<svg"),
    ],
)
async def test_the_states_are_drawn(idle: Served, query: str, kind: str, has: str) -> None:
    answer = await idle.client().get(f"/internal/states?{query}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    assert has in answer.text
