"""The routes of workers: list, drain and scale."""

import pytest

from tests.server.conftest import Served
from tests.support.server.requests import get, worker_of


async def test_workers_are_told_and_can_be_drained(served: Served) -> None:
    client = served.client()
    worker = await worker_of(served)
    assert worker["live"] is True
    assert worker["draining"] is False
    assert "mail.send" in worker["types"]
    path = f"/internal/workers/{worker['worker']}/drain"
    assert (await client.post(path, json={"reason": "its host goes"})).json()["changed"] is True
    entries = (await get(client, f"/internal/audit?task=worker:{worker['worker']}"))["entries"]
    assert entries[0]["reason"] == "its host goes"


async def test_a_worker_nobody_knows_is_404(served: Served) -> None:
    answer = await served.client().post("/internal/workers/nobody/drain")
    assert (answer.status_code, answer.json()["code"]) == (404, "worker-not-found")


@pytest.mark.parametrize("processes", [-1, 1001, "4", True, 1.5, None])
async def test_scaling_is_bounded(idle: Served, processes: object) -> None:
    body = {"processes": processes}
    answer = await idle.client().post("/internal/workers/scale", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
