"""Queues paused and resumed from Python."""

import pytest

from holdfast import Context, Holdfast
from holdfast.domain.errors import InvalidName, UnknownQueue
from holdfast.ports import Switch
from holdfast.testing.contract.drivers.store_driver import beat


def declared(app: Holdfast) -> None:
    @app.task("mail.send", queue="mail")
    async def send(ctx: Context, to: str) -> str:
        return to


async def test_a_declared_queue_is_paused_and_resumed_in_the_actors_name(app: Holdfast) -> None:
    declared(app)
    async with app:
        queues = app.queues.acting_as("ann", "desk")
        assert await queues.pause("mail", claiming=True, reason="moving") == {Switch.CLAIMING: True}
        [off] = await app.store.admin.switches()
        assert (off.name, off.by.actor, off.by.origin, off.by.reason) == (
            *("mail", "ann", "desk"),
            "moving",
        )
        assert await queues.resume("mail") == {Switch.INTAKE: False, Switch.CLAIMING: True}


async def test_a_queue_that_nobody_has_is_paused_with_force_only(app: Holdfast) -> None:
    declared(app)
    async with app:
        with pytest.raises(UnknownQueue):
            await app.queues.pause("mial")
        assert await app.store.admin.switches() == []
        await app.queues.pause("mial", intake=True, force=True)
        assert "mial" in await app.queues.names()
        await app.queues.resume("mial")
        with pytest.raises(InvalidName):
            await app.queues.pause("no good", force=True)


async def test_a_queue_that_a_live_worker_serves_or_that_has_tasks_is_known(app: Holdfast) -> None:
    declared(app)
    mail = app.registry.find("mail.send")
    assert mail is not None
    async with app:
        await app.store.tasks.renew(beat(queues=("elsewhere",)), [], lease_seconds=30)
        await app.submit(mail, "ann", queue="odd")
        for queue in ("elsewhere", "odd"):
            assert await app.queues.pause(queue, claiming=True) == {Switch.CLAIMING: True}
