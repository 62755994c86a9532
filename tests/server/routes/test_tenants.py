"""The routes of tenants, also of those whose names have slashes."""

from urllib.parse import quote

import pytest

from tests.server.conftest import Served
from tests.support.server.requests import get, lose


async def test_a_tenant_is_told_with_its_task_its_line_and_what_to_do(served: Served) -> None:
    client = served.client()
    task_id = await lose(client, tenant="t-1")
    told = await get(client, "/internal/tenants/t-1")
    assert told["tenantId"] == "t-1"
    assert task_id in (told["active"] or told["latest"])["taskId"]
    assert told["next"]
    nobody = await client.get("/internal/tenants/t-99")
    assert (nobody.status_code, nobody.json()["code"]) == (404, "tenant-not-found")


async def test_many_tenants_are_told_at_once_and_a_foreign_one_is_left_out(idle: Served) -> None:
    sent = [{"type": "mail.send", "payload": "x", "tenant": f"t-{n}"} for n in (1, 2, 3)]
    await idle.client().post("/api/tasks", json={"tasks": sent})
    body = {"tenants": ["t-3", "t-1", "t-3", "nobody"]}
    told = (await idle.client().post("/internal/tenants/query", json=body)).json()["tenants"]
    assert [one["tenantId"] for one in told][:2] == ["t-3", "t-1"]
    own = (await idle.client("of-t-1").post("/internal/tenants/query", json=body)).json()
    assert [one["tenantId"] for one in own["tenants"]] == ["t-1"]
    too_many = {"tenants": ["t"] * 201}
    assert (await idle.client().post("/internal/tenants/query", json=too_many)).is_error
    foreign = await idle.client("of-t-1").get("/internal/tenants/t-3")
    nobodys = await idle.client("of-t-1").get("/internal/tenants/t-9")
    assert foreign.text == nobodys.text.replace("t-9", "t-3")
    assert foreign.status_code == 404


@pytest.mark.parametrize("tenant", ["a/b", "a/b/c", "a//b", "a/retry", "a/query", "x/", "a@b/c=d"])
@pytest.mark.parametrize("encoded", [True, False])
async def test_a_tenant_with_slashes_is_reached_on_every_route(
    idle: Served, tenant: str, encoded: bool
) -> None:
    client, written = idle.client(), quote(tenant, safe="") if encoded else tenant
    if tenant.endswith("/retry"):
        written = quote(tenant, safe="")  # as it is, it would be a command
    body = {"tasks": [{"type": "mail.send", "payload": "ann", "tenant": tenant}]}
    [made] = (await client.post("/api/tasks", json=body)).json()["tasks"]
    shown = await client.get(f"/internal/tenants/{written}")
    assert (shown.status_code, shown.json().get("tenantId")) == (200, tenant), shown.text
    assert shown.json()["active"]["taskId"] == made["taskId"]
    retried = await client.post(f"/internal/tenants/{written}/retry")
    assert retried.json()["code"] == "illegal-transition", "it was found, and only waits"
    for path in ("/api/tasks", "/internal/tasks/suspended", "/api/triggers"):
        listed = await client.get(path, params={"tenant": tenant})
        assert listed.status_code == 200
    [asked] = (await client.post("/internal/tenants/query", json={"tenants": [tenant]})).json()[
        "tenants"
    ]
    assert asked["active"]["taskId"] == made["taskId"]


async def test_the_metrics_and_the_audit_name_the_route_as_it_is_documented(idle: Served) -> None:
    await idle.client("of-t-1").post("/internal/tenants/a%2Fb/retry", json={})
    await idle.client("viewer").post("/internal/tenants/a%2Fb/retry", json={})
    commands = {entry.command for entry in await idle.app.store.admin.audits(limit=10)}
    assert commands == {"POST /internal/tenants/{tenant}/retry"}
    told = (await idle.client().get("/metrics")).text
    assert 'route="/internal/tenants/{tenant}/retry"' in told
    assert ":path" not in told


async def test_a_command_of_a_tenant_is_no_tenant_of_that_name(idle: Served) -> None:
    for method in ("GET", "OPTIONS"):
        answer = await idle.client().request(method, "/internal/tenants/t-1/retry")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
