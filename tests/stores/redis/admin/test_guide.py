"""docs/redis.md says what is true: its tables are compared with the code and with a server."""

import re
from typing import NamedTuple

from holdfast.domain.audit import Audit
from holdfast.domain.task.state import Command
from holdfast.ports import Switch, Timings
from holdfast.stores.redis.client import checks
from holdfast.stores.redis.keys import TEMPLATES, TYPES
from holdfast.stores.redis.views.walks import kind_of
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import ASKER
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from tests.support.redis.redis_stores import Bench, benched
from tests.support.source_tree import ROOT, text_of
from verify.servers import RedisServer

DOCUMENT = ROOT / "docs" / "redis.md"
NONE = "–"
ONCE_SETTLED = {
    *("task", "ckpt", "ckpt_meta", "key"),
    *("plan", "plan_members", "plan_admitted", "plan_events"),
}


class Row(NamedTuple):
    name: str
    type: str
    ttl: str


def keys_told() -> dict[str, Row]:
    """By kind."""
    _, _, rest = text_of(DOCUMENT).partition("| key | type | TTL | what |")
    found = re.findall(r"^\| `(\S+)` \| (\w+) \| (.+?) \| .+ \|$", rest, re.MULTILINE)
    kinds = {template: kind for kind, template in TEMPLATES.items()}
    rows = [Row(re.sub(r"[A-Z]+(\\\|[A-Z]+)?", "{}", name), *others) for name, *others in found]
    return {kinds[row.name]: row for row in rows}


def test_every_key_is_told_and_no_other() -> None:
    told = keys_told()
    assert set(told) == set(TEMPLATES)
    assert {kind: told[kind].type for kind in TYPES} == TYPES


def test_every_check_is_told() -> None:
    _, _, rest = text_of(DOCUMENT).partition("| check | refused | warned about |")
    told = re.findall(r"^\| ([a-z ]+?)(?: \(.*?\))? \|", rest.partition("\n\n")[0], re.MULTILINE)
    judged = [judge.__name__.removesuffix("_check") for judge in checks.JUDGES]
    assert told == [*judged, "clock", "lost writes"]


async def test_types_and_times_to_live_are_as_told(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    async with benched(redis_server, redis_namespace) as bench:
        await live(bench)
        told, seen = keys_told(), set()
        for name in bench.names():
            kind, _ = kind_of(name)
            seen.add(kind)
            assert bench.ask("TYPE", name) == told[kind].type, name
            if told[kind].ttl == NONE:
                assert bench.ask("TTL", name) == -1, name
        expiring = {kind for kind, row in told.items() if row.ttl != NONE}
        assert seen >= {"task", "ckpt", "stages", "events", "line", "lock", "leases", "retry"}
        assert seen >= {"by_cause", "errors", "counts", "moves", "durations", "switches"}
        assert seen >= {kind for kind in TEMPLATES if kind.startswith(("trigger", "plan"))}
        for kind in expiring & seen - ONCE_SETTLED:
            ttls = [bench.ask("TTL", name) for name in bench.names() if kind_of(name)[0] == kind]
            assert min(ttls) > 0, kind


async def live(bench: Bench) -> None:
    driver = bench.driver
    await driver.complete(await driver.start(tenant="a", key="k", plan="p"))
    await driver.complete(await driver.start(key="gone", keep_seconds=0))
    await driver.suspend(await driver.finish_stage(await driver.start(tenant="b"), seen=1))
    await driver.fail(await driver.start(tenant="c"))
    await driver.start(tenant="d", queue="other")
    await driver.submit_many(2, tenant="d")
    await driver.ask(Command.CANCEL, await driver.submit())
    running = await driver.start(tenant="e")
    await driver.renew(running)
    await operate(bench)
    await live_in_time(bench)


async def operate(bench: Bench) -> None:
    at = bench.clock.now()
    shut = Audit(task_id="queue:slow", command="pause", by=ASKER, at=at, before="", after="")
    await bench.store.admin.set_switch(Switch.INTAKE, "slow", on=False, audit=shut)
    took = Timings(type="a", stage="b", outcome="done", counts=(1,), total_seconds=1.0)
    await bench.store.admin.observe([took])


async def live_in_time(bench: Bench) -> None:
    triggers = TriggerDriver(bench.store, bench.clock, bench.driver)
    plans = PlanStoreDriver(bench.store, bench.clock)
    await triggers.fire(await triggers.start())
    await triggers.settle(await triggers.save_due())
    await triggers.start(declared=True)
    await plans.create_settled()
    await plans.drive(await plans.start(), moves={0: ADMITTED})
