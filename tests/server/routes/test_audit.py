"""The routes of the audit: its entries, the transitions and the check of the chain."""

from tests.server.conftest import Served
from tests.support.server.requests import get


async def test_the_audit_has_pages_and_its_chain_holds(idle: Served) -> None:
    client = idle.client()
    for number in range(5):
        await client.post(f"/internal/queues/q-{number}/intake/pause", json={"force": True})
    first = await get(client, "/internal/audit?limit=3")
    rest = await get(client, f"/internal/audit?cursor={first['cursor']}")
    told = [one["taskId"] for one in first["entries"] + rest["entries"]]
    assert told == [f"queue:q-{n}" for n in (4, 3, 2, 1, 0)]
    chain = await get(client, "/internal/audit/verify")
    assert (chain["holds"], chain["links"]) == (True, 5)
    noted = await get(client, f"/internal/audit/verify?head={chain['head']}")
    assert noted["holds"] is True
    other = await get(client, f"/internal/audit/verify?head=5:{'0' * 64}")
    assert (other["holds"], other["brokenAt"]) == (False, 5)


async def test_every_transition_is_listed_with_who_made_it_in_pages(idle: Served) -> None:
    client = idle.client()
    body = {"tasks": [{"type": "mail.send", "payload": "x", "tenant": one} for one in ("a", "b")]}
    made = [one["taskId"] for one in (await client.post("/api/tasks", json=body)).json()["tasks"]]
    await client.post(f"/api/tasks/{made[0]}/pause", json={"reason": "lunch"})
    path = "/internal/audit/transitions"
    told = (await get(client, f"{path}?tenant=a"))["transitions"]
    assert [(one["command"], one["before"], one["after"]) for one in told] == [
        ("submit", None, "PENDING"),
        ("pause", "PENDING", "PAUSED"),
    ]
    assert [(one["maker"], one["name"], one["reason"]) for one in told] == [
        ("client", "", ""),
        ("operator", "api:admin", "lunch"),
    ]
    assert {one["taskId"] for one in told} == {made[0]}
    assert (await get(client, f"{path}?task={made[0]}"))["transitions"] == told
    assert (await get(client, f"{path}?until=2001-01-01T00:00:00Z"))["transitions"] == []
    first = await get(client, f"{path}?limit=1")
    rest = await get(client, f"{path}?limit=9&cursor={first['cursor']}")
    whole = (await get(client, path))["transitions"]
    assert (first["transitions"] + rest["transitions"], rest["cursor"]) == (whole, None)
    assert (await client.get(f"{path}?task=nobody")).status_code == 404
    assert (await client.get(f"{path}?cursor=x")).status_code == 422
