"""Deleting what has ended, from Python."""

from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.errors import InvalidInput
from holdfast.ports import Kept
from holdfast.testing.plugin import MakeEngine


async def test_an_app_prunes_by_age_and_undercuts_keep_only_when_told_to(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("send")
    async def send(ctx: Context) -> None:
        pass

    engine = holdfast_engine(app)
    handle = await send.submit()
    await engine.drain()
    await engine.advance("2d")
    assert (await app.prune(older_than="1d")).counts[Kept.TASKS] == 0
    counted = await app.prune("tasks", older_than="1d", ignore_keep=True, dry_run=True)
    assert (counted.counts, counted.complete) == ({Kept.TASKS: 1}, True)
    assert (await handle.info()).status == "COMPLETED"
    pruned = await app.prune("tasks", older_than="1d", ignore_keep=True)
    assert pruned.counts == {Kept.TASKS: 1}
    entries = await engine.store.admin.audits(limit=10)
    assert [(one.by.actor, one.command, one.after) for one in entries][:1] == [
        ("app", "prune", "older than 1d, ignoring keep: tasks 1")
    ]


async def test_a_kind_that_is_none_is_refused(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    holdfast_engine(app)
    with pytest.raises(InvalidInput, match="tasks, triggers, plans"):
        await app.prune("dust")


async def test_a_misspelt_option_deletes_nothing(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    holdfast_engine(app)
    misspelt: Any = {"dryrun": True}
    with pytest.raises(InvalidInput, match=r"no such option: dryrun \(there are dry_run"):
        await app.prune(**misspelt)
