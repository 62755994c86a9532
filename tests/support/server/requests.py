"""Requests that several tests of the service send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from holdfast.ports import Topic

if TYPE_CHECKING:
    from tests.server.conftest import Served

APPLY = "/api/workflows/apply"


async def lose(client: httpx.AsyncClient, to: str = "bob", **more: Any) -> str:
    """Submit a task that fails, and return its id: it waits for a person."""
    answer = await client.post(APPLY, json={"type": "mail.lost", "payload": to, **more})
    assert answer.json()["taskStatus"] == "FAILED", answer.text
    return str(answer.json()["taskId"])


async def get(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def worker_of(served: Served) -> dict[str, Any]:
    """Return the only worker, whose first sign of life may be a moment away."""
    client, store = served.client(), served.app.store
    while True:
        if workers := (await get(client, "/internal/workers"))["workers"]:
            [worker] = workers
            return dict(worker)
        await store.wait(Topic.READY, store.ticket(Topic.READY), timeout=0.02)
