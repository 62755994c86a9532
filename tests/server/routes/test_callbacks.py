"""A request over HTTP may bring a callback URL, which is told the outcome later."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.server.conftest import Served, serve
from tests.support.notified_app import telling_app, told
from tests.support.sinks.receiver import Receiver


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async for served in serve(telling_app(tmp_path), workers=1):
        yield served


async def test_apply_answers_now_and_the_callback_is_told(
    served: Served, receiver: Receiver
) -> None:
    body = {"type": "mail.send", "payload": "you", "callbackUrl": receiver.url("/done")}
    answer = await served.client().post("/api/workflows/apply", json=body)
    assert answer.status_code == 200
    [seen] = await receiver.got(1)
    said = told(seen)
    assert (said["type"], said["data"]["taskId"]) == ("TaskCompleted", answer.json()["taskId"])
    assert said["data"]["result"] == answer.json()["result"] == "sent to you"


async def test_a_suspended_task_answers_202_and_the_callback_is_told(
    served: Served, receiver: Receiver
) -> None:
    body = {"type": "mail.lost", "payload": "you", "callbackUrl": receiver.url("/done")}
    answer = await served.client().post("/api/workflows/apply", json=body)
    assert (answer.status_code, answer.json()["status"]) == (202, "suspended")
    [seen] = await receiver.got(1)
    assert told(seen)["data"]["status"] == "suspended"


async def test_each_task_of_a_batch_has_its_own(served: Served, receiver: Receiver) -> None:
    tasks = [
        {"type": "mail.send", "payload": to, "callbackUrl": receiver.url(f"/{to}")}
        for to in ("ann", "bob")
    ]
    answer = await served.client().post("/api/tasks", json={"tasks": tasks})
    assert answer.status_code == 202
    seen = await receiver.got(2)
    assert sorted(one.path for one in seen) == ["/ann", "/bob"]


@pytest.mark.parametrize("url", ["http://example.com/", "https://192.168.1.1/", "no url"])
async def test_an_address_that_is_not_meant_is_422(served: Served, url: str) -> None:
    body = {"type": "mail.send", "payload": "you", "callbackUrl": url}
    answer = await served.client().post("/api/workflows/apply", json=body)
    assert answer.status_code == 422
    assert answer.json()["code"] == "url-refused"


async def test_callbacks_that_are_not_set_up_are_422(unset: Served) -> None:
    body = {"type": "mail.send", "payload": "you", "callbackUrl": "https://example.com/"}
    answer = await unset.client().post("/api/workflows/apply", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "url-refused")


@pytest.fixture
async def unset() -> AsyncIterator[Served]:
    app = Holdfast("memory://")

    @app.task("mail.send")
    async def send(ctx: object, to: str) -> None: ...

    async for served in serve(app, workers=1):
        yield served
