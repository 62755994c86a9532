"""The busy way past FastAPI's search for parameters: it answers what the general way answers."""

from typing import Any

import pytest

from holdfast.server.http.route import StrictRoute
from holdfast.server.routes.tasks import Batch
from tests.server.conftest import Served

MAIL = {"type": "mail.send", "payload": "ann"}
BODIES: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"tasks":[]}',
    b'{"tasks":[{"type":"mail.send","payload":"ann","more":1}]}',
    b'{"tasks":[{"type":7,"payload":"ann"}]}',
    b'{"tasks":[{"type":"mail.send","payload":7}]}',
    b'{"tasks":[{"type":"nobody","payload":"ann"}]}',
    b'{"tasks":[{"type":"mail.send","payload":"\\u0000"}]}',
    b'{"tasks":[{"type":"mail.send","payload":NaN}]}',
    b'{"tasks":[{"type":"mail.send","payload":"ann","tenant":"no good"}]}',
    b"[" * 2000 + b"]" * 2000,
]


async def posted(served: Served, body: bytes, kind: str) -> tuple[int, Any]:
    async with served.client("operator") as client:
        answer = await client.post("/api/tasks", content=body, headers={"content-type": kind})
    return answer.status_code, answer.json()


def test_the_route_that_is_asked_most_takes_it(idle: Served) -> None:
    [route] = [
        one
        for one in idle.api.routes
        if isinstance(one, StrictRoute)
        and one.path == "/api/tasks"
        and "POST" in (one.methods or ())
    ]
    assert route.takes is Batch


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_what_is_wrong_is_refused_as_on_the_general_way(idle: Served, body: bytes) -> None:
    straight = await posted(idle, body, "application/json")
    general = await posted(idle, body, "application/json; charset=utf-8")
    assert straight == general
    assert 400 <= straight[0] < 500


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.shop+json"])
async def test_what_is_right_is_accepted_on_both(idle: Served, kind: str) -> None:
    async with idle.client("of-t-1") as client:
        answer = await client.post(
            "/api/tasks", json={"tasks": [MAIL]}, headers={"content-type": kind}
        )
    assert answer.status_code == 202
    [told] = answer.json()["tasks"]
    [task] = await idle.app.store.views.load([told["taskId"]])
    assert task is not None
    assert task.tenant == "t-1"


async def test_another_kind_of_body_is_not_taken_for_json(idle: Served) -> None:
    body = b'{"tasks":[{"type":"mail.send","payload":"ann"}]}'
    assert (await posted(idle, body, "text/plain"))[0] in (415, 422)
