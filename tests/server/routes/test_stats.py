"""The counts of tasks, for the person on call."""

from tests.server.conftest import Served
from tests.support.server.requests import APPLY, get, lose, worker_of


async def test_stats_count_by_the_names_of_the_envelope_and_of_the_engine(served: Served) -> None:
    client = served.client()
    lost = await lose(client)
    await worker_of(served)
    await client.post(APPLY, json={"type": "mail.send", "payload": "ann"})
    served.service.monitor._last = None  # one look serves all for two seconds
    told = await get(client, "/internal/tasks/stats")
    assert (told["counts"]["suspended"], told["counts"]["completed"]) == (1, 1)
    assert (told["byStatus"]["FAILED"], told["byStatus"]["COMPLETED"]) == (1, 1)
    assert lost in [task["taskId"] for task in told["latest"]]
    assert told["liveWorkers"] == 1
    assert told["durable"] is False
    none = await get(client, "/internal/tasks/stats?latest=0")
    assert none["latest"] == []
