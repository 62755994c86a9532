"""The routes of suspended tasks."""

from typing import Any

import pytest

from tests.server.conftest import Served
from tests.support.server.requests import APPLY, get, lose

SUSPENDED = "/internal/tasks/suspended"


async def test_suspended_tasks_are_listed_with_filters_and_pages(served: Served) -> None:
    client = served.client()
    ids = [await lose(client, f"box-{n}", tenant=f"t-{n}") for n in range(5)]
    await client.post(APPLY, json={"type": "mail.send", "payload": "ann"})
    first = await get(client, f"{SUSPENDED}?limit=3")
    rest = await get(client, f"{SUSPENDED}?cursor={first['cursor']}")
    found = [task["taskId"] for task in first["tasks"] + rest["tasks"]]
    assert found == sorted(ids, reverse=True)
    mine = await get(client, f"{SUSPENDED}?tenant=t-3")
    assert [task["taskId"] for task in mine["tasks"]] == [ids[3]]
    error = first["tasks"][0]["error"]["fingerprint"]
    assert len((await get(client, f"{SUSPENDED}?error={error}"))["tasks"]) >= 1
    assert (await get(client, f"{SUSPENDED}?type=mail.send"))["tasks"] == []
    own = await get(served.client("of-t-1"), SUSPENDED)
    assert [task["tenantId"] for task in own["tasks"]] == ["t-1"]


async def test_groups_tell_one_cause_once(served: Served) -> None:
    client = served.client()
    ids = [await lose(client, "bob") for _ in range(3)]
    [group] = (await get(client, f"{SUSPENDED}/groups"))["groups"]
    assert (group["count"], group["error"]) == (3, "holdfast.Permanent")
    assert group["example"]["taskId"] in ids
    assert group["message"] == "no such box: bob, password=***"
    listed = await get(client, f"{SUSPENDED}?error={group['fingerprint']}")
    assert {task["taskId"] for task in listed["tasks"]} == set(ids)


async def test_a_suspended_task_is_told_with_its_traceback(served: Served) -> None:
    client = served.client()
    task_id = await lose(client)
    told = await get(client, f"{SUSPENDED}/{task_id}")
    assert "Permanent" in told["error"]["traceback"]
    assert told["payload"] == "bob"


@pytest.mark.parametrize("path", ["", "/resume", "/discard"])
async def test_what_is_not_suspended_is_409_and_what_is_not_there_404(
    served: Served, path: str
) -> None:
    client = served.client()
    sent = {"type": "mail.send", "payload": "ann"}
    done = (await client.post(APPLY, json=sent)).json()["taskId"]
    method = "POST" if path else "GET"
    fine = await client.request(method, f"{SUSPENDED}/{done}{path}")
    assert (fine.status_code, fine.json()["code"]) == (409, "not-suspended")
    nobody = await client.request(method, f"{SUSPENDED}/nobody{path}")
    assert (nobody.status_code, nobody.json()["code"]) == (404, "task-not-found")


async def test_a_suspended_task_is_resumed_or_discarded_with_a_reason(served: Served) -> None:
    client = served.client("operator")
    task_id = await lose(client)
    resumed = await client.post(f"{SUSPENDED}/{task_id}/resume", json={"reason": "try again"})
    assert (resumed.status_code, resumed.json()["status"]) == (200, "PENDING")
    other = await lose(client, "eve")
    discarded = await client.post(f"{SUSPENDED}/{other}/discard", json={"reason": "a duplicate"})
    assert discarded.json()["status"] == "CANCELLED"
    assert (await get(client, f"/api/tasks/{other}"))["reason"] == "a duplicate"
    entries = (await get(client, f"/internal/audit?task={other}"))["entries"]
    assert [(one["command"], one["reason"]) for one in entries] == [("discard", "a duplicate")]


async def test_a_suspended_task_is_amended_and_set_going(served: Served) -> None:
    client = served.client()
    task_id = await lose(client, key="k-1")
    amend = f"{SUSPENDED}/{task_id}/amend"
    wrongs: list[dict[str, Any]] = [{}, {"payload": 7}, {"payloads": "x"}, {"data": []}]
    for wrong in wrongs:
        answer = await client.post(amend, json=wrong)
        assert answer.status_code in {400, 422}, answer.text
    answer = await client.post(amend, json={"data": {"note": "x" * 70_000}})
    assert (answer.status_code, answer.json()["code"]) == (413, "checkpoint-too-large")
    answer = await client.post(amend, json={"payload": "ann", "reason": "a slip"})
    assert answer.status_code == 200, answer.text
    assert (await get(client, f"/api/tasks/{task_id}"))["payload"] == "ann"
    again = await client.post(APPLY, json={"type": "mail.lost", "payload": "bob", "key": "k-1"})
    assert again.json()["taskId"] == task_id
    entries = (await get(client, f"/internal/audit?task={task_id}"))["entries"]
    assert entries[0]["command"] == "amend"
    assert (await client.post(f"{SUSPENDED}/nobody/amend", json={"payload": 1})).status_code == 404
