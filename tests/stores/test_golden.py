"""A store that the version before wrote is opened, read and carried to its end."""

import json

from holdfast import Filter
from holdfast.domain.audit import Anchor
from holdfast.domain.task.state import SETTLED, Status
from holdfast.engine.operations import audit
from holdfast.notify.signature import verify
from tests.support.sinks.receiver import Receiver
from tests.support.stores.golden_stores import SUSPENDED, GoldenStore
from verify.golden.tasks import HOOK_SECRET


async def test_every_task_plan_and_trigger_is_read_as_it_was_written(golden: GoldenStore) -> None:
    app, facts = golden.app, golden.facts
    assert await golden.statuses() == {k: v["status"] for k, v in facts["tasks"].items()}
    for plan, status in facts["plans"].items():
        assert (await app.plan.get(plan).info()).status == status
    assert {t.id: t.status async for t in app.schedule.find()} == facts["triggers"]
    for bulk in facts["bulks"].values():
        assert (await (await app.bulk.get(bulk["id"])).info()).phase == bulk["phase"]


async def test_the_doctor_finds_nothing_wrong(golden: GoldenStore) -> None:
    assert list(await golden.store.admin.doctor(fix=False, limit=1000)) == []


async def test_the_chain_of_the_audit_still_holds(golden: GoldenStore) -> None:
    noted = Anchor(**golden.facts["audit"])
    verdict = await audit.verify(golden.store, noted=noted)
    assert verdict.holds
    assert verdict.head.seq >= noted.seq


async def test_causes_do_not_split_when_a_task_fails_as_before(golden: GoldenStore) -> None:
    before = golden.facts["errors"]
    assert await golden.error_groups() == before

    for mode in ("permanent", "refused", "time"):
        await golden.work.upgrade.submit(mode, tenant=f"again-{mode}")
    await golden.work.mail.submit("down-again")
    await golden.engine.advance("6m")

    after = {group["fingerprint"]: group["count"] for group in await golden.error_groups()}
    assert set(after) == {group["fingerprint"] for group in before}
    assert all(
        after[group["fingerprint"]] > group["count"]
        for group in before
        if group["error"].startswith("holdfast.")
    )


async def test_keys_answer_with_the_tasks_that_they_were_given_to(golden: GoldenStore) -> None:
    done = await golden.work.upgrade.submit("ok", tenant="t-done", key="key-done")
    held = await golden.work.upgrade.submit("ok", tenant="t-held", key="key-held")
    pruned = await golden.work.brief.submit(41, key="key-pruned")
    assert done.id == golden.id_of("done")
    assert held.id == golden.id_of("held")
    assert pruned.id == golden.id_of("pruned")


async def test_checkpoints_give_back_results_and_data(golden: GoldenStore) -> None:
    checkpoint = await golden.app.checkpoints.get(golden.id_of("permanent-1"))
    assert checkpoint is not None
    assert checkpoint.completed_stage_names == ("snapshot",)
    assert checkpoint.custom_data["snapshot"] == "t-permanent-1-before"

    golden.mend()
    await golden.app.handle(golden.id_of("permanent-1")).retry("the schema is free")
    await golden.engine.advance("1m")
    after = await golden.app.handle(golden.id_of("permanent-1")).result()
    assert after == "t-permanent-1 is well"


async def test_a_tenant_and_a_queue_that_were_stopped_stay_so_until_they_are_released(
    golden: GoldenStore,
) -> None:
    golden.mend()
    await golden.engine.advance("1m")
    statuses = await golden.statuses()
    assert (statuses["held"], statuses["slow"]) == ("PENDING", "PENDING")
    assert (await golden.app.tenants.find("t-held")) is not None

    await golden.app.tenants.release("t-held")
    await golden.app.queues.resume("golden-slow", claiming=True)
    await golden.engine.advance("1m")
    statuses = await golden.statuses()
    assert (statuses["held"], statuses["slow"]) == ("COMPLETED", "COMPLETED")


async def test_a_notification_that_was_owed_is_delivered_and_signed(
    golden: GoldenStore, receiver: Receiver
) -> None:
    golden.mend()
    await golden.engine.advance("1s")
    requests = await receiver.got(2)
    for request in requests:
        verify(HOOK_SECRET, request.headers, request.body, now=golden.clock.now())
    events = {json.loads(request.body)["type"] for request in requests}
    assert events == {"PlanHalted", "TaskRolledBack"}


async def test_all_of_it_is_carried_to_its_end(golden: GoldenStore, receiver: Receiver) -> None:
    golden.mend()
    app, engine = golden.app, golden.engine
    await golden.set_going()
    await app.plan.get("golden-halted").retry("the schema is free")
    for trigger in ("golden-paused", "golden-declared"):
        await (await app.schedule.get(trigger)).resume()
    fired = {trigger.id: trigger.fired async for trigger in app.schedule.find()}

    await engine.advance("1s")
    await receiver.got(1)
    for _ in range(10):  # how far a bulk action gets in a minute of this clock depends on threads
        await engine.advance("16m")
        if await _bulk_actions_are_done(golden):
            break

    await _assert_tasks_and_plans_ended_well(golden)
    await _assert_bulk_actions_are_done(golden)
    _assert_no_stage_was_done_again(golden)
    assert [t.id async for t in app.schedule.find() if t.fired <= fired[t.id]] == []
    assert (await (await app.schedule.get("golden-once")).info()).status == "COMPLETED"
    assert list(await golden.store.admin.doctor(fix=False, limit=1000)) == []
    assert (await audit.verify(golden.store, noted=Anchor(**golden.facts["audit"]))).holds


async def _assert_tasks_and_plans_ended_well(golden: GoldenStore) -> None:
    wanted = dict.fromkeys(golden.facts["tasks"], "COMPLETED")
    wanted |= dict.fromkeys(("undo-later", "undo-broken"), "ROLLED_BACK")
    assert await golden.statuses() == wanted
    for plan in golden.facts["plans"]:
        assert (await golden.app.plan.get(plan).info()).status == "COMPLETED"
    assert await golden.error_groups() == []
    unsettled = tuple(set(Status) - SETTLED)
    assert list((await golden.store.views.find(Filter(statuses=unsettled), limit=10)).tasks) == []


async def _bulk_actions_are_done(golden: GoldenStore) -> bool:
    bulks = [await golden.app.bulk.get(bulk["id"]) for bulk in golden.facts["bulks"].values()]
    return all([(await bulk.info()).phase == "done" for bulk in bulks])


async def _assert_bulk_actions_are_done(golden: GoldenStore) -> None:
    for bulk in golden.facts["bulks"].values():
        info = await (await golden.app.bulk.get(bulk["id"])).info()
        assert (info.phase, info.left, info.counts.refused) == ("done", 0, {})


def _assert_no_stage_was_done_again(golden: GoldenStore) -> None:
    calls = golden.work.calls
    begun = ("t-leased", *(f"t-{label}" for label in SUSPENDED))
    assert {tenant for stage, tenant in calls if stage == "snapshot"}.isdisjoint(begun)
    assert {tenant for stage, tenant in calls if stage == "migrate"}.issuperset(begun)
    assert ("undo verify", "t-undo-later") not in calls
    assert ("undo migrate", "t-undo-later") in calls
