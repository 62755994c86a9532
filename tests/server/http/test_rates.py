"""How much one caller may ask for, what every answer carries, and that to look changes nothing."""

import re
from typing import Any

import httpx
import msgspec
import pytest

from holdfast.ports import Filter
from holdfast.server import Service, bare_api, create_api
from holdfast.server.auth import tokens as tk
from holdfast.server.auth.tokens import Role
from holdfast.testing.clock import ManualClock
from tests.server.auth.test_roles import TABLE
from tests.server.conftest import BASE, Served, declared, made_tokens

SAFE = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Paced:
    """A service whose clock stands still until the test moves it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        app = declared(**settings)
        app.clock = self.clock
        tokens, self.texts = made_tokens()
        slow, self.texts["slow"] = tk.make("slow", Role.VIEWER, rate=1.0)
        self.api = bare_api(Service(app, tokens=[*tokens, slow]), None)

    def client(self, text: str | None, origin: str = "10.0.0.1") -> httpx.AsyncClient:
        headers = {} if text is None else {"authorization": f"Bearer {text}"}
        transport = httpx.ASGITransport(self.api, client=(origin, 1))
        return httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers)


async def statuses(client: httpx.AsyncClient, count: int) -> list[int]:
    return [(await client.get("/api/types")).status_code for _ in range(count)]


async def test_a_token_that_asks_too_much_is_told_when_to_come_back() -> None:
    paced = Paced(rate_limit=5.0)
    async with paced.client(paced.texts["viewer"]) as client:
        assert await statuses(client, 10) == [200] * 10, "two seconds' worth at once"
        answer = await client.get("/api/types")
        assert (answer.status_code, answer.json()["code"]) == (429, "too-many-requests")
        assert int(answer.headers["retry-after"]) >= 1
        paced.clock.advance(int(answer.headers["retry-after"]))
        assert await statuses(client, 6) == [200] * 5 + [429]


async def test_each_token_is_counted_by_itself() -> None:
    paced = Paced(rate_limit=1.0)
    async with (
        paced.client(paced.texts["viewer"]) as one,
        paced.client(paced.texts["operator"]) as other,
    ):
        assert await statuses(one, 3) == [200, 200, 429]
        assert await statuses(other, 3) == [200, 200, 429]


async def test_a_token_may_have_a_rate_of_its_own() -> None:
    paced = Paced(rate_limit=1000.0)
    async with paced.client(paced.texts["slow"]) as client:
        assert await statuses(client, 3) == [200, 200, 429]


async def test_who_guesses_tokens_is_slowed_down_by_address() -> None:
    paced = Paced()
    async with paced.client("hf_000000000000_guess") as guesser:
        assert await statuses(guesser, 4) == [401, 401, 429, 429]
        paced.clock.advance(1.0)
        assert await statuses(guesser, 2) == [401, 429]
    async with paced.client("hf_000000000000_guess", "10.0.0.2") as elsewhere:
        assert await statuses(elsewhere, 1) == [401]
    async with paced.client(paced.texts["viewer"]) as good:
        assert await statuses(good, 1) == [200], "from that address, with a token that counts"


async def test_what_needs_no_token_has_no_limit() -> None:
    paced = Paced(rate_limit=0.1)
    async with paced.client(None) as client:
        answers = [(await client.get("/livez")).status_code for _ in range(50)]
    assert answers == [200] * 50


# -- what every answer carries


@pytest.mark.parametrize(
    ("method", "path", "token", "status"),
    [
        ("GET", "/livez", None, 200),
        ("GET", "/readyz", None, 200),
        ("GET", "/openapi.json", None, 200),
        ("GET", "/api/tasks", "admin", 200),
        ("GET", "/metrics", "admin", 200),
        ("GET", "/internal/states?format=text", "admin", 200),
        ("GET", "/api/tasks", None, 401),
        ("GET", "/internal/audit", "of-t-1", 403),
        ("GET", "/api/tasks/nobody", "admin", 404),
        ("GET", "/nowhere", "admin", 404),
        ("GET", "/", None, 404),
        ("PUT", "/api/tasks", "admin", 405),
        ("GET", "/api/tasks?limit=0", "admin", 422),
    ],
)
async def test_every_answer_has_the_headers_that_keep_it_safe(
    idle: Served, method: str, path: str, token: str | None, status: int
) -> None:
    answer = await idle.client(token).request(method, path)
    assert answer.status_code == status
    for name, value in SAFE.items():
        assert answer.headers.get_list(name) == [value], name
    if status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json().keys() >= {"type", "title", "status", "detail", "code"}


async def test_an_answer_that_nobody_foresaw_has_them_too_and_tells_nothing(
    idle: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(idle.app.registry, "names", broken)
    answer = await idle.client().get("/api/types")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "hunter2" not in answer.text
    for name, value in SAFE.items():
        assert answer.headers[name] == value


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/api/tasks/some-task/why", "GET"),
        ("POST", "/api/plans/some-plan/tasks", "GET"),
        ("POST", "/api/triggers/nightly/next", "GET"),
        ("GET", "/internal/tenants/query", "POST"),
        ("OPTIONS", "/api/plans", "GET, POST"),
        ("DELETE", "/api/tasks/some-task/cancel", "POST"),
    ],
)
async def test_a_path_that_a_route_names_word_for_word_is_that_routes_alone(
    idle: Served, method: str, path: str, allowed: str
) -> None:
    answer = await idle.client().request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["code"] == "method-not-allowed"


# -- to look changes nothing

LOOKS = [path for method, path, _ in TABLE if method == "GET"]


async def everything(served: Served, ids: dict[str, str]) -> bytes:
    """All that the store keeps, as it tells it."""
    store = served.app.store
    stats = await store.views.stats()
    tasks = (await store.views.find(Filter(), limit=100)).tasks
    told = [
        stats.by_status,
        stats.refused,
        [await store.views.detail(task.id) for task in tasks],
        await store.plans.load([ids["plan_id"]]),
        await store.triggers.find(ids["trigger_id"]),
        await store.admin.audits(limit=100),
        (await store.admin.chain(limit=100)).links,
        await store.admin.switches(),
    ]
    return msgspec.json.encode(told)


@pytest.fixture
async def filled(idle: Served) -> dict[str, str]:
    client = idle.client()
    order = {"type": "tenant.upgrade", "payload": {}}
    batch = {"tasks": [order | {"tenant": "t-1"}, order]}
    task_id = (await client.post("/api/tasks", json=batch)).json()["tasks"][0]["taskId"]
    plan = order | {"planId": "p-1", "tenants": ["t-5"]}
    trigger = order | {"triggerId": "nightly", "cron": "0 3 * * *"}
    bulk = {"command": "pause", "filter": {"tenant": "t-9"}}
    assert (await client.post("/api/plans", json=plan)).status_code == 201
    assert (await client.post("/api/triggers", json=trigger)).status_code == 201
    bulk_id = (await client.post("/internal/bulk", json=bulk)).json()["bulkId"]
    await client.post(f"/api/tasks/{task_id}/cancel")
    return {
        "task_id": task_id,
        "plan_id": "p-1",
        "trigger_id": "nightly",
        "bulk_id": bulk_id,
        "tenant": "t-1",
    }


@pytest.mark.parametrize("path", LOOKS)
async def test_to_look_changes_nothing(idle: Served, filled: dict[str, str], path: str) -> None:
    whole = re.sub(r"\{(\w+)\}", lambda found: filled[found[1]], path)
    if whole.endswith("/events"):
        idle.service.stopping.set()  # or a stream might have no end
    before = await everything(idle, filled)
    answer = await idle.client().get(whole)
    assert answer.status_code in (200, 409, 503), answer.text
    assert await everything(idle, filled) == before


async def test_livez_needs_no_store() -> None:
    api = create_api(Service(declared("redis://127.0.0.1:1/0")))  # and nothing is opened
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        answer = await client.get("/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "live"})
