"""The routes of the doctor."""

from tests.server.conftest import Served
from tests.support.server.requests import get


async def test_the_doctor_looks_and_mends_and_only_mending_is_written_down(idle: Served) -> None:
    client = idle.client()
    told = await get(client, "/internal/doctor")
    assert told["findings"] == []
    assert (await get(client, "/internal/audit"))["entries"] == []
    mended = await client.post("/internal/doctor/fix", json={"reason": "after the restore"})
    assert mended.status_code == 200
    [entry] = (await get(client, "/internal/audit"))["entries"]
    assert (entry["command"], entry["reason"]) == ("doctor fix", "after the restore")
