"""A SQLite file with tasks in it, and the command line to look at them."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from typer.testing import CliRunner, Result

from holdfast import Context, Holdfast, Permanent
from holdfast.cli.root import cli
from holdfast.engine.declare import AsyncTask, Workflow

T = TypeVar("T")

ESCAPE = "\x1b"
BROKEN, STUCK, FINE = "broken", "stuck", "fine"  # STUCK: it cannot be undone either
FORGED, LONG_WINDED = "forged", "long-winded"  # FORGED: its error looks like a line of our own
ERRORS = {
    FORGED: "no\nstatus  COMPLETED, all is well",
    LONG_WINDED: "the disk is full again, and nobody has emptied it since yesterday",
}


class App:
    """Fresh for each event loop; the file is what lasts."""

    def __init__(self, url: str) -> None:
        self.app = Holdfast(url)
        self.upgrade: Workflow[str, Any] = self.app.workflow(
            "tenant.upgrade", payload=str, on_invalid="restart", checkpoint_max_age="7d"
        )

        @self.upgrade.stage
        async def snapshot(ctx: Context, order: str) -> str:
            ctx.data["taken"] = True
            return "a snapshot"

        @snapshot.undo
        async def drop_snapshot(ctx: Context, order: str) -> None:
            if order == STUCK:
                raise Permanent("the snapshot is gone")

        @self.upgrade.stage
        async def migrate(ctx: Context, order: str) -> str:
            if order in (BROKEN, STUCK):
                raise Permanent(f"{ESCAPE}[31mthe disk is full")
            if order in ERRORS:
                raise Permanent(ERRORS[order])
            return "migrated"

        @self.app.task("mail.send")
        async def send(ctx: Context, to: str) -> str:
            if to == BROKEN:
                raise Permanent("no such box")
            return to

        self.send: AsyncTask[str, str] = send


class World:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def cli(self, *args: str, answer: str | bytes | None = None, columns: int = 80) -> Result:
        env = {"HOLDFAST_STORE": self.url, "COLUMNS": str(columns), "NO_COLOR": "1"}
        return CliRunner().invoke(cli, list(args), input=answer, env=env)

    def json(self, *args: str, code: int = 0) -> Any:
        result = self.cli(*args, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def do(self, act: Callable[[App], Awaitable[T]]) -> T:
        """Call ``act`` with the file open, and no worker."""

        async def whole() -> T:
            made = App(self.url)
            async with made.app:
                return await act(made)

        return asyncio.run(whole())

    def upgrade(
        self, order: str = FINE, *, tenant: str | None = None, queue: str = "default"
    ) -> str:
        async def submit(made: App) -> str:
            return (await made.upgrade.submit(order, tenant=tenant, queue=queue)).id

        return self.do(submit)

    def send(self, to: str = "a@example.org") -> str:
        async def submit(made: App) -> str:
            return (await made.send.submit(to)).id

        return self.do(submit)

    def work_until_rested(self, *ids: str) -> None:
        async def whole() -> None:
            made = App(self.url)
            async with made.app.running():
                await asyncio.gather(
                    *(made.app.waiters.wait_until_stopped(task_id) for task_id in ids)
                )

        asyncio.run(whole())

    def plan(self, plan_id: str, orders: Mapping[str, str], **terms: Any) -> None:
        """Create a plan with an order for each tenant."""

        async def make(made: App) -> None:
            tasks = [made.upgrade.on(order, tenant=tenant) for tenant, order in orders.items()]
            await made.app.plan(plan_id, tasks, **terms)

        self.do(make)

    def work_until_plan_rests(self, plan_id: str) -> None:
        async def whole() -> None:
            made = App(self.url)
            async with made.app.running():
                await made.app.plan.get(plan_id).wait("60s")

        asyncio.run(whole())

    def failed(self, order: str = BROKEN, **options: Any) -> str:
        task_id = self.upgrade(order, **options)
        self.work_until_rested(task_id)
        return task_id

    def outlive_checkpoints(self) -> None:
        """Make all stored checkpoints look as if they were saved long ago."""
        with closing(sqlite3.connect(self.path)) as file, file:
            long_ago = "json_set(body, '$.timestamp', '2001-01-01T00:00:00Z')"
            file.execute(f"UPDATE checkpoints SET body = {long_ago}")

    def failed_mails(self, number: int) -> list[str]:
        ids = [self.send(BROKEN) for _ in range(number)]
        self.work_until_rested(*ids)
        return ids
