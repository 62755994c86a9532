"""Types whose effects go by the submit key: what `ctx.key` is, and who has to bring a key."""

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, Permanent, Retry, Status
from holdfast.domain.task.effects import effects_id, member_key
from holdfast.engine.declare import AsyncTask, Workflow
from holdfast.errors import DeclarationError, InvalidInput, KeyRequired
from holdfast.testing.plugin import MakeEngine
from tests.server.conftest import Served, serve
from tests.support.runtime.helpers import within_bounds
from verify.servers import RedisServer


class Bank:
    """A workflow and a task, with all keys that they were given."""

    def __init__(self, app: Holdfast, **options: Any) -> None:
        self.app = app
        self.keys: list[str] = []
        self.pay: Workflow[int, Any] = app.workflow("pay", payload=int, effects="key", **options)

        @self.pay.stage(retry=Retry(max=3, backoff=("1m",), jitter=0.0))
        async def charge(ctx: Context, amount: int) -> None:
            self.keys.append(ctx.key)
            if amount == 13 and ctx.attempt == 1:
                raise ConnectionError("away")

        @charge.undo
        async def refund(ctx: Context, amount: int) -> None:
            self.keys.append(ctx.key)

        @self.pay.stage
        async def tell(ctx: Context) -> None:
            self.keys.append(ctx.key)
            if ctx.tenant == "broken":
                raise Permanent("no")

        @app.task("mail", effects="key")
        async def mail(ctx: Context, to: str) -> None:
            self.keys.append(ctx.key)

        self.mail: AsyncTask[str, None] = mail


def test_the_id_is_a_fixed_function_of_namespace_type_tenant_and_key() -> None:
    assert effects_id("executor", "pay", "t-001", "order-1") == "k-6ygpgpx5mimmmvyslp5rg6vz34"
    assert effects_id("executor", "pay", None, "order-1") == "k-qgoli6oibgnk2qawblixixruqp"
    assert effects_id("prod:executor", "付款", "租户", "订单") == "k-n4awm7eturb7ceqi6letjtt562"
    written = b"8:executor,3:pay,5:t-001,7:order-1,"
    text = base64.b32encode(hashlib.sha256(written).digest()).decode().lower()
    assert effects_id("executor", "pay", "t-001", "order-1") == f"k-{text[:26]}"


def test_no_two_works_have_the_same_id() -> None:
    works = [
        ("a", "b", "c", "d"),
        ("a", "b", None, "d"),
        ("a", "b", "-", "d"),
        ("ab", "", "c", "d"),
        ("a", "bc", "", "d"),
        ("a", "b", "c,1:d", ""),
        ("a", "b", "c", "d|1"),
    ]
    assert len({effects_id(*work) for work in works}) == len(works)


async def test_the_key_of_an_effect_is_that_of_the_submit(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bank = Bank(app)
    engine = holdfast_engine(app)
    handle = await bank.pay.submit(13, tenant="t-001", key="order-1")
    await engine.drain()
    await engine.advance("1m")
    assert (await handle.info()).status is Status.COMPLETED
    start = effects_id("executor", "pay", "t-001", "order-1")
    assert bank.keys == [f"{start}/1/charge", f"{start}/1/charge", f"{start}/1/tell"]
    await handle.rollback()
    await engine.drain()
    assert bank.keys[3:] == [f"{start}/1/charge/undo"]
    await handle.retry(from_checkpoint=False)
    await engine.advance("2m")
    assert bank.keys[4:] == [f"{start}/2/charge", f"{start}/2/charge", f"{start}/2/tell"]


async def test_work_that_was_lost_and_is_sent_again_has_the_same_keys(
    holdfast_engine: MakeEngine,
) -> None:
    """With a store of its own each time, nothing is left of the first one."""
    keys = []
    for _ in range(2):
        bank = Bank(Holdfast("memory://"))
        engine = holdfast_engine(bank.app)
        await bank.pay.submit(1, tenant="t", key="order-1")
        await engine.drain()
        keys.append(bank.keys)
        engine.close()
    assert keys[0] == keys[1]


async def test_by_default_the_key_is_that_of_the_task(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task
    async def note(ctx: Context) -> str:
        return ctx.key

    holdfast_engine(app)
    handle = await note.submit(key="k")
    assert await handle.result() == f"{handle.id}/1/note"


async def test_what_was_submitted_before_the_type_changed_keeps_its_keys(
    holdfast_engine: MakeEngine,
) -> None:
    before = Holdfast("memory://")

    @before.task("mail")
    async def mail(ctx: Context, to: str) -> None: ...

    first = holdfast_engine(before)
    handle = await mail.submit("ann", key="k")
    first.close()
    bank = Bank(Holdfast("memory://"))
    engine = holdfast_engine(bank.app, store=first.store, clock=first.clock)
    await engine.drain()
    assert bank.keys == [f"{handle.id}/1/mail"]


async def test_a_submit_without_a_key_is_refused_and_nothing_is_written(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bank = Bank(app)
    holdfast_engine(app)
    with pytest.raises(KeyRequired, match="mail") as refused:
        await bank.mail.submit("ann")
    assert isinstance(refused.value, InvalidInput)
    with pytest.raises(KeyRequired):
        await bank.mail.submit_many(["ann", "bob"])
    assert not (await app.store.views.stats()).by_status
    assert len(await bank.mail.submit_many(["ann", "bob"], keys=["a", "b"])) == 2


async def test_the_tasks_of_a_plan_go_by_its_id_and_their_number(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bank = Bank(app)
    engine = holdfast_engine(app)
    tasks = [bank.mail.on(to, tenant=tenant) for to, tenant in (("ann", "a"), ("bob", "b"))]
    plan = await app.plan("upgrade-7", tasks)
    await engine.advance("1m")
    assert (await plan.info()).status == "COMPLETED"
    assert sorted(bank.keys) == sorted(
        f"{effects_id('executor', 'mail', tenant, f'upgrade-7|{number}')}/1/mail"
        for number, tenant in ((1, "a"), (2, "b"))
    )
    with pytest.raises(InvalidInput):
        await bank.mail.submit("x", key=member_key("upgrade-7", 1))


async def test_the_tasks_of_a_trigger_go_by_its_fire_time(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    bank = Bank(app)
    engine = holdfast_engine(app)
    trigger = await app.schedule.every("1h", bank.mail, "ann", name="hourly")
    await engine.advance("2h")
    fired = await trigger.fire()
    await engine.drain()
    tasks = [await app.store.views.detail(fired.id)]
    assert tasks[0] is not None
    key = tasks[0].task.key
    assert key is not None
    assert bank.keys[-1] == f"{effects_id('executor', 'mail', None, key)}/1/mail"
    assert len(set(bank.keys)) == len(bank.keys) >= 3


@pytest.mark.parametrize("effects", ["keys", "", None, True])
def test_another_word_is_refused(app: Holdfast, effects: Any) -> None:
    with pytest.raises(DeclarationError, match="effects"):
        app.workflow("pay", effects=effects)
    with pytest.raises(DeclarationError, match="effects"):

        @app.task("mail", effects=effects)
        async def mail(ctx: Context) -> None: ...


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    bank = Bank(Holdfast("memory://"))
    async for one in serve(bank.app, workers=1):
        yield one


async def test_the_api_refuses_what_has_no_key(served: Served) -> None:
    client = served.client()
    work = {"type": "mail", "payload": "ann"}
    batch = {"tasks": [work | {"key": "k"}, work]}
    for path, body in (
        ("/api/workflows/apply", work),
        ("/api/tasks", {"tasks": [work]}),
        ("/api/tasks", batch),
    ):
        answer = await client.post(path, json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["code"] == "key-required"
    assert "tasks.1.key" in (await client.post("/api/tasks", json=batch)).text
    assert (await client.get("/api/tasks")).json()["tasks"] == [], "nothing was written"
    header = {"Idempotency-Key": "k"}
    answer = await client.post("/api/workflows/apply", json=work, headers=header)
    assert answer.status_code == 200


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_the_key_of_an_effect_is_kept_on_each_store(
    kind: str, tmp_path: Path, redis_server: RedisServer, redis_namespace: str
) -> None:
    stores = {"sqlite": f"sqlite:///{tmp_path}/kept.db", "redis": redis_server.url}
    bank = Bank(Holdfast(stores.get(kind, "memory://"), namespace=redis_namespace))
    async with bank.app.running():
        handle = await bank.mail.submit("ann", tenant="t", key="k")
        await within_bounds(handle.result())
        plan = await bank.app.plan("p", [bank.mail.on("bob", tenant="u")])
        await within_bounds(plan.wait())
    assert bank.keys == [
        f"{effects_id(redis_namespace, 'mail', tenant, key)}/1/mail"
        for tenant, key in (("t", "k"), ("u", "p|1"))
    ]
