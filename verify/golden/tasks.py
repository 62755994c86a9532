"""The tasks of a golden store fail, wait and hang until their world is mended.

Both the writing version and today's load this module, so it keeps to names that both have.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from holdfast import Context, Holdfast, Retry
from holdfast.domain.errors import Permanent, RetryAfter, SinkError, SinkUnavailable

LATER = "2h"  # a retry that is not due while the store is written
NOBODY = "http://127.0.0.1:9/"  # refuses at once
HOOK_SECRET = "whsec_Z29sZGVuLWdvbGRlbi1nb2xkZW4tZ29sZGVu"
HOOKS = f"""[hooks.golden]
url = "{{url}}"
events = ["PlanHalted", "TaskRolledBack"]
secret = "{HOOK_SECRET}"
"""
SLOW_QUEUE = "golden-slow"  # its claiming is paused when the writer leaves


class GoldenWork:
    """An app with every kind of work that a store may hold half done."""

    def __init__(self, folder: Path, hook_url: str = NOBODY) -> None:
        self.broken = True  # stages and undos fail as their payload says
        self.healing = False  # what failed by ValueError waits for a retry instead
        self.mail_is_down = True
        self.calls = list[tuple[str, str | None]]()  # of stage or undo, and tenant
        hooks = folder / "webhooks.toml"
        hooks.write_text(HOOKS.format(url=hook_url), encoding="utf-8")
        hooks.chmod(0o600)
        self.app = app = Holdfast(
            "memory://", webhooks=hooks, webhook_allow=["127.0.0.1"], webhook_timeout=30.0
        )

        retry = Retry(max=3, backoff=("1s",))
        self.upgrade = app.workflow(
            "golden.upgrade", payload=str, result=str, retry=retry, queue="golden"
        )

        @self.upgrade.stage
        async def snapshot(ctx: Context, mode: str) -> str:
            self.calls.append(("snapshot", ctx.tenant))
            ctx.data["snapshot"] = f"{ctx.tenant}-before"
            return f"snapshot of {ctx.tenant}"

        @snapshot.undo
        async def drop_snapshot(ctx: Context, mode: str) -> None:
            self.calls.append(("undo snapshot", ctx.tenant))

        @self.upgrade.stage(timeout="90s")
        async def migrate(ctx: Context, mode: str) -> object:
            self.calls.append(("migrate", ctx.tenant))
            if self.broken:
                await self._fail(mode)
            assert ctx.data["snapshot"] == f"{ctx.tenant}-before"
            return {"from": ctx.result_of(snapshot), "mode": mode}

        @migrate.undo
        async def migrate_back(ctx: Context, mode: str) -> None:
            self.calls.append(("undo migrate", ctx.tenant))
            if self.broken and mode == "undo later":
                raise RetryAfter(LATER)
            if self.broken and mode == "undo broken":
                raise Permanent("the snapshot is locked")

        @self.upgrade.stage
        async def verify(ctx: Context, mode: str) -> str:
            self.calls.append(("verify", ctx.tenant))
            return f"{ctx.tenant} is well"

        @verify.undo
        async def forget(ctx: Context, mode: str) -> None:
            self.calls.append(("undo verify", ctx.tenant))

        @app.task("golden.mail", retry=Retry(max=1), queue="golden")
        async def mail(ctx: Context, to: str) -> str:
            if self.mail_is_down and to.startswith("down"):
                raise SinkError("the mail server is away")
            return f"sent to {to}"

        @app.task("golden.brief", keep="1m", queue="golden")
        async def brief(ctx: Context, number: int) -> int:
            return number + 1

        @app.task("golden.slow", queue=SLOW_QUEUE)
        async def slow(ctx: Context) -> str:
            return "slow, but done"

        @mail.cron("*/10 * * * *", name="golden-declared")
        def to_whom(at: datetime) -> str:
            if self.broken:
                raise ValueError("nobody to write to")
            return "declared"

        self.mail, self.brief, self.slow = mail, brief, slow

    async def _fail(self, mode: str) -> None:
        match mode:
            case "permanent":
                raise Permanent("the schema is locked")
            case "sink":
                raise SinkUnavailable("the database is away")
            case "refused":
                raise SinkError("the database refused the statement")
            case "value" if self.healing:
                raise RetryAfter(LATER)
            case "value":
                raise ValueError("no such column")
            case "later":
                raise RetryAfter(LATER)
            case "time" | "hang":
                await asyncio.Event().wait()
