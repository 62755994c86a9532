"""Every route with the role it needs: a route that is not in this table fails the test."""

import re
from pathlib import Path

import httpx
import pytest

from holdfast.server.api import routes
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import StrictRoute
from tests.server.conftest import Served

ROLES = """
POST /api/workflows/apply                          operator
GET  /api/workflows/tasks/{task_id}                viewer
POST /api/tasks                                    operator
GET  /api/tasks                                    viewer
GET  /api/tasks/{task_id}                          viewer
GET  /api/tasks/{task_id}/why                      viewer
GET  /api/tasks/{task_id}/commands                 viewer
GET  /api/tasks/{task_id}/timeline                 viewer
GET  /api/tasks/{task_id}/events                   viewer
POST /api/tasks/{task_id}/{command}                operator
GET  /api/types                                    viewer
POST /api/plans                                    operator
GET  /api/plans                                    viewer, of all tenants
GET  /api/plans/{plan_id}                          viewer
GET  /api/plans/{plan_id}/tasks                    viewer
GET  /api/plans/{plan_id}/events                   viewer
POST /api/plans/{plan_id}/{command}                operator
POST /api/triggers                                 operator
GET  /api/triggers                                 viewer
GET  /api/triggers/{trigger_id}                    viewer
GET  /api/triggers/{trigger_id}/next               viewer
POST /api/triggers/{trigger_id}/{command}          operator
POST /api/telegram/webhook                         Telegram's secret
GET  /internal/tasks/stats                         viewer, of all tenants
GET  /internal/tasks/suspended                     viewer
GET  /internal/tasks/suspended/groups              viewer, of all tenants
GET  /internal/tasks/suspended/{task_id}           viewer
POST /internal/tasks/suspended/{task_id}/resume    operator
POST /internal/tasks/suspended/{task_id}/amend     operator
POST /internal/tasks/suspended/{task_id}/discard   operator
GET  /internal/checkpoints/{task_id}               viewer
POST /internal/checkpoints/{task_id}/put           operator
POST /internal/checkpoints/{task_id}/remove        operator
POST /internal/bulk                                operator
GET  /internal/bulk                                viewer, of all tenants
GET  /internal/bulk/{bulk_id}                      viewer
POST /internal/bulk/{bulk_id}/{command}            operator
GET  /internal/workers                             viewer, of all tenants
POST /internal/workers/scale                       admin, of all tenants
POST /internal/workers/{worker}/drain              admin, of all tenants
GET  /internal/queues                              viewer, of all tenants
POST /internal/queues/{queue}/{what}/{turning}     operator, of all tenants
GET  /internal/tenants/{tenant}                    viewer
POST /internal/tenants/query                       viewer
POST /internal/tenants/{tenant}/retry              operator
POST /internal/tenants/{tenant}/hold               operator
POST /internal/tenants/{tenant}/release            operator
GET  /internal/holds                               viewer
GET  /internal/alerts                              viewer, of all tenants
GET  /internal/alerts/events                       viewer, of all tenants
GET  /internal/audit                               viewer, of all tenants
GET  /internal/audit/transitions                        viewer, of all tenants
GET  /internal/audit/verify                        viewer, of all tenants
GET  /internal/doctor                              viewer, of all tenants
POST /internal/doctor/fix                          admin, of all tenants
GET  /internal/states                              viewer, of all tenants
GET  /metrics                                      viewer, of all tenants
GET  /livez                                        public
GET  /readyz                                       public
GET  /openapi.json                                 public
"""

TABLE = [line.split(maxsplit=2) for line in ROLES.strip().splitlines()]
OWN_WAYS = ("public", "Telegram's secret")  # without a token; test_telegram.py has the latter
GUARDED = [(method, path, role) for method, path, role in TABLE if role not in OWN_WAYS]


def test_the_table_has_every_route_and_no_other() -> None:
    found = {
        (method, route.path_format, told(route))
        for route in routes().routes
        if isinstance(route, StrictRoute)
        for method in route.methods or ()
    }
    assert len(found) == len(routes().routes), "a route that nobody guards"
    assert found == {(method, path, role) for method, path, role in TABLE}


def told(route: StrictRoute) -> str:
    if route.need.role is None:
        return OWN_WAYS[route.need.secret is not None]
    return f"{route.need.role}, of all tenants" if route.need.everywhere else str(route.need.role)


def test_only_reads_are_safe_methods() -> None:
    assert {method for method, _, _ in TABLE} == {"GET", "POST"}


@pytest.mark.parametrize(("method", "path"), [one[:2] for one in GUARDED])
async def test_without_a_token_nothing_is_told(served: Served, method: str, path: str) -> None:
    answer = await asked(served.client(None), method, path)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path", "role"), GUARDED)
async def test_each_role_below_the_needed_one_is_refused(
    served: Served, method: str, path: str, role: str
) -> None:
    needed = Role(role.partition(",")[0])
    for weaker in Role:
        if weaker.rank < needed.rank:
            answer = await asked(served.client(weaker), method, path)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("method", "path"), [one[:2] for one in GUARDED if one[2].endswith("of all tenants")]
)
async def test_what_concerns_all_tenants_is_not_for_a_token_of_some(
    served: Served, method: str, path: str
) -> None:
    answer = await asked(served.client("of-t-1"), method, path)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def asked(client: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    return await client.request(method, re.sub(r"\{\w+\}", "x", path))


async def test_a_refused_change_is_written_down_with_actor_and_address(served: Served) -> None:
    await served.client("viewer").post("/api/tasks/some-task/cancel")
    await served.client(None).post("/internal/doctor/fix")
    entries = (await served.client().get("/internal/audit")).json()["entries"]
    told = [(one["actor"], one["origin"], one["command"], one["refused"]) for one in entries]
    assert told == [
        ("anonymous", "127.0.0.1", "POST /internal/doctor/fix", "unauthenticated"),
        ("api:viewer", "127.0.0.1", "cancel", "forbidden"),
    ]
    assert [one["taskId"] for one in entries] == ["service", "some-task"]


async def test_a_refused_look_is_not_written_down(served: Served) -> None:
    await served.client(None).get("/api/tasks")
    await served.client("of-t-1").get("/internal/audit")
    assert (await served.client().get("/internal/audit")).json()["entries"] == []


async def test_strangers_cannot_fill_the_audit(still: Served) -> None:
    client = still.client(None)
    for _ in range(20):
        await client.post("/api/tasks", json={})
    entries = (await still.client().get("/internal/audit")).json()["entries"]
    assert len(entries) == 1


def test_the_documented_table_is_this_one() -> None:
    text = Path("docs/api.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+) (\S+)` \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)
    assert documented == [tuple(line) for line in TABLE]
