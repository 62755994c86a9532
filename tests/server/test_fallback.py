"""A service that fell back to memory says so wherever somebody may look (P10)."""

from collections.abc import AsyncIterator

import pytest

from tests.server.conftest import Served, declared, serve

NOBODY = "redis://127.0.0.1:1"


@pytest.fixture
async def fallen() -> AsyncIterator[Served]:
    async for one in serve(declared(NOBODY, fallback="memory"), workers=1):
        yield one


async def test_a_service_that_fell_back_to_memory_is_ready_and_says_so(fallen: Served) -> None:
    answer = await fallen.client(None).get("/readyz")
    told = answer.json()
    assert (answer.status_code, told["status"], told["reachable"]) == (200, "ready", True)
    assert (told["store"], told["degraded"], told["durable"]) == ("memory", True, False)


async def test_its_stats_its_metrics_and_its_alerts_say_so(fallen: Served) -> None:
    client = fallen.client()
    stats = (await client.get("/internal/tasks/stats")).json()
    assert (stats["degraded"], stats["durable"]) == (True, False)
    metrics = (await client.get("/metrics")).text.splitlines()
    assert "holdfast_durable 0" in metrics
    assert "holdfast_degraded 1" in metrics
    await fallen.service.monitor.tick()
    alerts = (await client.get("/internal/alerts")).json()["alerts"]
    assert "not-durable" in [one["code"] for one in alerts]


async def test_one_that_was_told_to_use_memory_is_not_durable_and_not_degraded(
    idle: Served,
) -> None:
    told = (await idle.client(None).get("/readyz")).json()
    assert (told["degraded"], told["durable"]) == (False, False)
    metrics = (await idle.client().get("/metrics")).text.splitlines()
    assert "holdfast_degraded 0" in metrics
