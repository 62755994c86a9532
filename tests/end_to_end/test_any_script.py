"""Names in Chinese from one end to the other: on every store, over HTTP and on the command line."""

import asyncio
import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from holdfast import Context, Filter, Holdfast, Permanent, Status
from holdfast.cli.exit_codes import Exit
from holdfast.cli.root import cli
from holdfast.engine.declare import AsyncTask, Workflow
from holdfast.errors import KeyConflict
from holdfast.notify.signature import Secret
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.server.conftest import Served, serve
from tests.support.notified_app import FILE_SECRET, all_told, hooks_file
from tests.support.sinks.receiver import Receiver
from verify.servers import Cluster, RedisServer

TENANT, KEY, QUEUE = "上海（一）-Zoë", "订单:2026/é", "慢队列-각"
PLAN, TRIGGER = "升级-novembré", "每夜.rapport-é"
TYPE, STAGES = "租户.升级", ["快照", "迁移"]
BOUND = "60s"


class Bench:
    def __init__(self, url: str, **settings: Any) -> None:
        self.app = Holdfast(url, **settings)
        self.keys: list[str] = []
        self.upgrade: Workflow[int, str] = self.app.workflow(
            TYPE, payload=int, result=str, queue=QUEUE
        )

        @self.upgrade.stage(name="快照")
        async def snapshot(ctx: Context, version: int) -> str:
            ctx.data["进度"] = "一半"
            return f"快照 {version}"

        @snapshot.undo
        async def drop(ctx: Context, version: int) -> None:
            self.keys.append(ctx.key)

        @self.upgrade.stage(name="迁移")
        async def migrate(ctx: Context, version: int) -> str:
            self.keys.append(ctx.key)
            if version < 0:
                raise Permanent("磁盘已满")
            return f"{ctx.result_of(snapshot)} → {ctx.tenant}"

        @self.app.task("邮件.发送")
        async def send(ctx: Context) -> str:
            return "好"

        self.send: AsyncTask[None, str] = send
        self.send.every("1h", name=TRIGGER, tenant=TENANT)


async def rested(app: Holdfast, task_id: str) -> Status:
    async with asyncio.timeout(60):
        return (await app.waiters.wait_until_stopped(task_id)).status


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=False) as started:
        yield started


@pytest.fixture(params=["memory", "sqlite", "redis", "cluster"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, redis_namespace: str) -> Bench:
    if request.param in ("redis", "cluster"):
        fixture = "redis_server" if request.param == "redis" else request.param
        server: RedisServer | Cluster = request.getfixturevalue(fixture)
        return Bench(server.url, namespace=f"prod:{redis_namespace}", queues=f"default,{QUEUE}")
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / '库.db'}"
    return Bench(url, queues=f"default,{QUEUE}")


async def test_tenants_keys_types_and_stages_work_on_every_store(bench: Bench) -> None:
    app, apart = bench.app, unicodedata.normalize("NFD", TENANT)
    async with app.running():
        handle = await bench.upgrade.submit(7, tenant=TENANT, key=KEY)
        assert await handle.result(timeout=BOUND) == f"快照 7 → {TENANT}"
        again = await bench.upgrade.submit(7, tenant=apart, key=unicodedata.normalize("NFD", KEY))
        assert again.id == handle.id
        with pytest.raises(KeyConflict):
            await bench.upgrade.submit(8, tenant=TENANT, key=KEY)

        [key] = bench.keys
        assert key == f"{handle.id}/1/{quote('迁移')}"
        assert key.isascii()
        assert unquote(key).endswith("迁移")

        lost = await bench.upgrade.submit(-1, tenant=TENANT)
        assert await rested(app, lost.id) is Status.FAILED
        status = await app.query.query_task_status_by_tenant(apart)
        assert status.task is not None
        assert (status.tenant, status.task.id, status.task.stage) == (TENANT, lost.id, "迁移")
        found = await app.store.views.find(Filter(tenant=TENANT, type=TYPE, queue=QUEUE), limit=10)
        assert {task.id for task in found.tasks} == {handle.id, lost.id}
        assert "迁移" in await app.why(lost.id)
        await lost.rollback(reason="回滚")
        assert await rested(app, lost.id) is Status.ROLLED_BACK
        assert bench.keys[-1] == f"{lost.id}/1/{quote('快照')}/undo"

        trigger = await app.schedule.get(TRIGGER, tenant=apart)
        fired = await trigger.fire(reason="现在")
        assert await fired.result(timeout=BOUND) == "好"
        [listed] = [one async for one in app.schedule.find(tenant=apart)]
        assert (listed.target, listed.tenant) == ("邮件.发送", TENANT)

        tasks = [bench.upgrade.on(1, tenant=f"租户-{n}") for n in range(3)]
        plan = await app.plan(PLAN, tasks, waves=["1", "100%"])
        assert (await plan.wait(timeout=BOUND)).status == "COMPLETED"
        assert (await app.query.query_plan_status(unicodedata.normalize("NFD", PLAN))).id == PLAN
        assert await app.store.admin.doctor(fix=False, limit=10) == []


# -- the command line


def test_the_command_line_takes_and_shows_them_in_columns(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"

    async def work() -> list[str]:
        bench = Bench(url, queues=f"default,{QUEUE}")
        async with bench.app.running():
            handles = [await bench.upgrade.submit(n, tenant=TENANT) for n in (1, -1)]
            handles.append(await bench.send.submit(tenant="t-001"))
            for handle in handles:
                await rested(bench.app, handle.id)
        return [handle.id for handle in handles]

    done, lost, _ = asyncio.run(work())
    runner, env = CliRunner(), {"HOLDFAST_STORE": url, "COLUMNS": "200"}

    def said(*words: str) -> str:
        result = runner.invoke(cli, [*words], env=env)
        assert result.exit_code == Exit.OK, result.output
        return result.stdout

    head, *rows = said("tasks", "list").splitlines()
    assert len(rows) == 3
    wanted = head.index("STATUS")
    for row in rows:
        status = next(one for one in ("COMPLETED", "FAILED") if one in row)
        assert cell_len(row[: row.index(status)]) == wanted
    apart = unicodedata.normalize("NFD", TENANT)
    listed = json.loads(said("tasks", "list", "--tenant", apart, "--type", TYPE, "--json"))
    assert {one["taskId"] for one in listed["tasks"]} == {done, lost}
    assert TENANT in said("tenants", "show", apart)
    assert "迁移" in said("why", lost)
    assert STAGES[0] in said("tasks", "show", done)
    said("queues", "pause", QUEUE, "--claiming")
    assert QUEUE in said("queues", "list")
    assert TENANT in said("suspended", "list")


def test_they_reach_a_terminal_that_knows_no_unicode_without_a_crash(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"

    async def work() -> None:
        async with Bench(url).app as app:
            await app.submit(app.registry.find("邮件.发送"), None, tenant=TENANT)  # type: ignore[arg-type]

    asyncio.run(work())
    env = os.environ | {"HOLDFAST_STORE": url, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "tasks", "list"],
        env=env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


# -- HTTP


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async for one in serve(Bench("memory://", queues=f"default,{QUEUE}").app, workers=1):
        yield one


def order(version: int = 7, **more: Any) -> dict[str, Any]:
    return {"type": TYPE, "payload": version, "tenant": TENANT, **more}


async def test_bodies_paths_queries_and_headers_carry_them(served: Served) -> None:
    client = served.client()
    answer = await client.post("/api/workflows/apply", json=order(key=KEY))
    assert (answer.status_code, answer.json()["result"]) == (200, f"快照 7 → {TENANT}")
    task_id = answer.json()["taskId"]
    shown = await client.get(f"/api/workflows/tasks/{task_id}")
    assert shown.json()["context"]["idempotencyKey"] == KEY

    written = quote(KEY), quote(KEY, safe="").lower(), KEY, quote(KEY).replace("-", "%2D")
    for key in (text.encode() for text in written):
        again = await client.post(
            "/api/workflows/apply", json=order(), headers=[(b"idempotency-key", key)]
        )
        assert (again.status_code, again.json()["taskId"]) == (200, task_id)

    apart = unicodedata.normalize("NFD", TENANT)
    for tenant in (TENANT, apart):
        shown = await client.get(f"/internal/tenants/{quote(tenant)}")
        assert (shown.status_code, shown.json()["tenantId"]) == (200, TENANT)
        listed = await client.get("/api/tasks", params={"tenant": tenant, "type": TYPE})
        assert [one["taskId"] for one in listed.json()["tasks"]] == [task_id]

    plan = {"planId": PLAN, "type": TYPE, "payload": 1, "tenants": ["租户-1", "租户-2"]}
    assert (await client.post("/api/plans", json=plan)).status_code == 201
    assert (await client.get(f"/api/plans/{quote(PLAN)}")).json()["planId"] == PLAN
    trigger = {"triggerId": "每周", "type": "邮件.发送", "cron": "0 3 * * 1"}
    assert (await client.post("/api/triggers", json=trigger)).status_code == 201
    assert (await client.get(f"/api/triggers/{quote('每周')}")).json()["triggerId"] == "每周"
    page = await client.get("/api/triggers", params={"limit": 1})
    rest = await client.get("/api/triggers", params={"limit": 1, "cursor": page.json()["cursor"]})
    assert rest.status_code == 200
    page = await client.get("/api/plans", params={"limit": 1})
    assert page.status_code == 200
    turned = await client.post(f"/internal/queues/{quote(QUEUE)}/claiming/pause", json={})
    assert (turned.status_code, turned.json()["queue"]) == (200, QUEUE)


async def test_metrics_have_them_as_labels() -> None:
    bench = Bench("memory://", queues=f"default,{QUEUE}")
    async with bench.app as app:
        await bench.upgrade.submit(7, tenant=TENANT)
        async for served in serve(app, workers=0):
            figures = (await served.client().get("/metrics")).text
            assert f'queue="{QUEUE}"' in figures


@pytest.mark.parametrize(
    "key", [b"%", b"%ff", b"%E8%AE", b"a%7Cb", b"a%20b", b"%E2%80%AE", b"a%00b", b"\xe9"]
)
async def test_a_key_that_is_none_is_refused_in_a_header_too(served: Served, key: bytes) -> None:
    client = served.client()
    answer = await client.post(
        "/api/workflows/apply", json=order(), headers=[(b"idempotency-key", key)]
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-name")


@pytest.mark.parametrize(
    "tenant", ["租\u202e户", "租\u3000户", "租|户", "\u0301a", "租" * 201, "𠮷" * 151]
)
async def test_what_misleads_is_refused_everywhere(served: Served, tenant: str) -> None:
    client = served.client()
    answers: list[httpx.Response] = [
        await client.post("/api/workflows/apply", json=order() | {"tenant": tenant}),
        await client.post("/api/tasks", json=[order() | {"tenant": tenant}]),
        await client.get("/api/tasks", params={"tenant": tenant}),
        await client.get(f"/internal/tenants/{quote(tenant)}"),
        await client.post("/internal/tenants/query", json={"tenants": [tenant]}),
    ]
    for answer in answers:
        assert (
            answer.status_code,
            answer.json()["code"] in ("invalid-name", "invalid-request"),
        ) == (
            422,
            True,
        )


# -- what is told


async def test_callbacks_and_hooks_carry_them(
    tmp_path: Path, receiver: Receiver, holdfast_engine: MakeEngine
) -> None:
    hooks = {
        "hook": {"url": receiver.url("/hook"), "events": ["TaskCompleted"], "tenants": [TENANT]}
    }
    bench = Bench(
        "memory://",
        webhooks=hooks_file(tmp_path, hook=hooks["hook"]),
        webhook_allow=["127.0.0.1"],
        callback_allow=["127.0.0.1"],
        webhook_timeout=30.0,
        queues=f"default,{QUEUE}",
    )
    engine: Engine = holdfast_engine(bench.app)
    handle = await bench.upgrade.submit(7, tenant=TENANT, key=KEY, callback=receiver.url("/told"))
    await engine.drain()
    paths = sorted(one.path for one in receiver.seen)
    assert paths == ["/hook", "/told"]
    receiver.seen = [one for one in receiver.seen if one.path == "/told"]
    [said] = all_told(receiver, engine, Secret.parse(FILE_SECRET).derive(TENANT).text())
    assert (said["data"]["tenantId"], said["data"]["key"], said["data"]["taskId"]) == (
        TENANT,
        KEY,
        handle.id,
    )
