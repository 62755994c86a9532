"""Another tenant's plan and trigger ids cannot be found out: taken and free answer alike."""

import re
from typing import Any

import httpx
import pytest

from tests.server.conftest import Served

PLAN: dict[str, Any] = {"type": "mail.send", "payload": "x"}
TRIGGER: dict[str, Any] = {"type": "mail.send", "payload": "x", "every": "1h"}
TIMES = re.compile(
    r'\d{4}-\d\d-\d\dT[0-9:.+Z-]+|"[\w-]*(?:Seconds|At|Time)\w*":[\d.]+|[0-9a-f-]{36}'
)


def same(one: httpx.Response, other: httpx.Response, names: tuple[str, str]) -> bool:
    """The answers do not differ but for the id that was sent, and for times and new ids."""
    told = [
        TIMES.sub("…", answer.text.replace(name, "ID"))
        for answer, name in zip((one, other), names, strict=True)
    ]
    assert one.status_code == other.status_code
    assert sorted(one.headers) == sorted(other.headers)
    return told[0] == told[1]


async def taken(served: Served) -> None:
    """Ids of another tenant, of several, and of none."""
    client = served.client()
    for plan_id, tenants in (("p-one", ["t-2"]), ("p-all", ["t-1", "t-2"])):
        body = PLAN | {"planId": plan_id, "tenants": tenants}
        assert (await client.post("/api/plans", json=body)).status_code == 201
    for trigger_id, more in (("n-one", {"tenant": "t-2"}), ("n-all", {})):
        body = TRIGGER | {"triggerId": trigger_id} | more
        assert (await client.post("/api/triggers", json=body)).status_code == 201


@pytest.mark.parametrize("plan_id", ["p-one", "p-all"])
@pytest.mark.parametrize("more", [{}, {"dryRun": True}, {"soak": "bad"}, {"conflict": "reject"}])
async def test_to_make_a_plan_answers_alike_whether_or_not_another_has_its_id(
    idle: Served, plan_id: str, more: dict[str, Any]
) -> None:
    await taken(idle)
    client, body = idle.client("of-t-1"), PLAN | {"tenants": ["t-1"]} | more
    there = await client.post("/api/plans", json=body | {"planId": plan_id})
    free = await client.post("/api/plans", json=body | {"planId": "f-one"})
    assert same(there, free, (plan_id, "f-one"))
    again = await client.post("/api/plans", json=body | {"planId": plan_id})
    assert same(
        again, await client.post("/api/plans", json=body | {"planId": "f-one"}), (plan_id, "f-one")
    )


@pytest.mark.parametrize("trigger_id", ["n-one", "n-all"])
@pytest.mark.parametrize("more", [{}, {"replace": True}, {"misfire": "bad"}])
async def test_to_make_a_trigger_answers_alike_whether_or_not_another_has_its_id(
    idle: Served, trigger_id: str, more: dict[str, Any]
) -> None:
    await taken(idle)
    client, body = idle.client("of-t-1"), TRIGGER | more
    there = await client.post("/api/triggers", json=body | {"triggerId": trigger_id})
    free = await client.post("/api/triggers", json=body | {"triggerId": "f-one"})
    assert same(there, free, (trigger_id, "f-one"))
    changed = body | {"every": "2h"}
    there = await client.post("/api/triggers", json=changed | {"triggerId": trigger_id})
    free = await client.post("/api/triggers", json=changed | {"triggerId": "f-one"})
    assert same(there, free, (trigger_id, "f-one"))


ROUTES = [
    *(("GET", f"/api/{{kind}}/{{id}}{rest}") for rest in ("", "/tasks", "/events", "/next")),
    *(
        ("POST", f"/api/{{kind}}/{{id}}/{command}")
        for command in ("pause", "resume", "cancel", "retry", "rollback", "fire", "nonsense")
    ),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    ("kind", "there"),
    [("plans", "p-one"), ("plans", "p-all"), ("triggers", "n-one"), ("triggers", "n-all")],
)
async def test_every_route_answers_alike_whether_or_not_another_has_that_id(
    idle: Served, method: str, path: str, kind: str, there: str
) -> None:
    await taken(idle)
    client = idle.client("of-t-1")
    one = await client.request(method, path.format(kind=kind, id=there))
    other = await client.request(method, path.format(kind=kind, id="f-one"))
    assert same(one, other, (there, "f-one"))
    assert one.status_code in (404, 405, 422)
    assert there not in (await client.get("/api/triggers")).text


async def test_a_plan_is_found_by_the_id_that_was_given_and_by_that_of_the_answer(
    idle: Served,
) -> None:
    client = idle.client("of-two")
    body = PLAN | {"planId": "mine", "tenants": ["t-1", "t-2"]}
    made = (await client.post("/api/plans", json=body)).json()
    assert made["planId"].startswith("mine.")
    again = (await client.post("/api/plans", json=body)).json()
    assert again["planId"] == made["planId"], "sent again it is the same"
    for name in ("mine", made["planId"]):
        assert (await client.get(f"/api/plans/{name}")).json()["planId"] == made["planId"]
        assert len((await client.get(f"/api/plans/{name}/tasks")).json()["tasks"]) == 2
    paused = await client.post("/api/plans/mine/pause")
    assert (paused.status_code, paused.json()["planId"]) == (200, made["planId"])
    other = await client.post("/api/plans", json=body | {"payload": "y"})
    assert (other.status_code, other.json()["code"]) == (409, "plan-conflict")
    of_all = (await idle.client().get("/api/plans")).json()["plans"]
    assert [one["planId"] for one in of_all] == [made["planId"]]


async def test_a_trigger_is_found_by_the_id_that_was_given_and_by_that_of_the_answer(
    idle: Served,
) -> None:
    client = idle.client("of-two")
    body = TRIGGER | {"triggerId": "mine", "tenant": "t-2"}
    made = (await client.post("/api/triggers", json=body)).json()
    assert made["triggerId"].startswith("mine.")
    for name in ("mine", made["triggerId"]):
        assert (await client.get(f"/api/triggers/{name}")).json()["triggerId"] == made["triggerId"]
        assert (await client.get(f"/api/triggers/{name}/next")).status_code == 200
    fired = await client.post("/api/triggers/mine/fire")
    assert (fired.status_code, fired.json()["triggerId"]) == (200, made["triggerId"])
    other = await client.post("/api/triggers", json=body | {"every": "2h"})
    assert (other.status_code, other.json()["code"]) == (409, "trigger-conflict")


async def test_what_is_there_under_the_very_id_and_its_own_is_gone_on_with(idle: Served) -> None:
    """Made before there were suffixes, or by an operator of all tenants for this one."""
    plan = PLAN | {"planId": "old", "tenants": ["t-1"]}
    trigger = TRIGGER | {"triggerId": "old", "tenant": "t-1"}
    await idle.client().post("/api/plans", json=plan)
    await idle.client().post("/api/triggers", json=trigger)
    client = idle.client("of-t-1")
    assert (await client.post("/api/plans", json=plan)).json()["planId"] == "old"
    assert (await client.post("/api/triggers", json=trigger)).json()["triggerId"] == "old"


async def test_an_id_that_leaves_no_room_for_the_suffix_is_refused(idle: Served) -> None:
    client, long = idle.client("of-t-1"), "x" * 90
    for path, body in (
        ("/api/plans", PLAN | {"planId": long, "tenants": ["t-1"]}),
        ("/api/triggers", TRIGGER | {"triggerId": long}),
    ):
        answer = await client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
        assert "83 characters" in answer.json()["detail"]
        assert (await client.get(f"{path}/{long}")).status_code == 404
