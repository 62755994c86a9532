"""Queues paused and resumed from Python."""

import pytest

from holdfast import Context, Holdfast
from holdfast.domain.errors import InvalidName, UnknownQueue
from holdfast.ports import Switch


def declared(app: Holdfast) -> None:
    @app.task("mail.send", queue="mail")
    async def send(ctx: Context, to: str) -> str:
        return to


async def test_a_declared_queue_is_paused_and_resumed_in_the_actors_name(app: Holdfast) -> None:
    declared(app)
    async with app:
        queues = app.queues.acting_as("ann", "desk")
        assert await queues.pause("mail", claiming=True, reason="moving") == {Switch.CLAIMING: True}
        [off] = await app.store.switches()
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
        assert await app.store.switches() == []
        await app.queues.pause("mial", intake=True, force=True)
        assert "mial" in await app.queues.known()
        await app.queues.resume("mial")
        with pytest.raises(InvalidName):
            await app.queues.pause("no good", force=True)
