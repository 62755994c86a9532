"""A service in this process, and callers of each role."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from holdfast import Context, Holdfast, Permanent, Retry
from holdfast.server import Service, create_api
from holdfast.server.auth import tokens as tk
from holdfast.server.auth.tokens import Role
from holdfast.testing.clock import ManualClock

BASE = "http://service"


@dataclass
class Served:
    app: Holdfast
    service: Service
    api: FastAPI
    tokens: dict[str, str]
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def client(self, name: str | None = "admin") -> httpx.AsyncClient:
        headers = {} if name is None else {"authorization": f"Bearer {self.tokens[name]}"}
        transport = httpx.ASGITransport(app=self.api, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers, timeout=30)
        self.clients.append(client)
        return client


def declared(store: str = "memory://", **settings: Any) -> Holdfast:
    """An app with what the tests of the service submit."""
    app = Holdfast(store, **settings)

    @app.task("mail.send")
    async def send(ctx: Context, to: str) -> str:
        return f"sent to {to}"

    @app.task("mail.lost", retry=Retry(max=1))
    async def lose(ctx: Context, to: str) -> str:
        raise Permanent(f"no such box: {to}, password=hunter2")

    upgrade = app.workflow("tenant.upgrade", payload=dict[str, object], result=dict[str, object])

    @upgrade.stage
    async def snapshot(ctx: Context, order: dict[str, object]) -> str:
        ctx.progress(0.5, "half way")
        return "snap-1"

    @upgrade.stage
    async def migrate(ctx: Context, order: dict[str, object]) -> dict[str, object]:
        return {"at": order.get("version"), "snapshot": ctx.result_of(snapshot)}

    return app


def made_tokens() -> tuple[list[tk.Token], dict[str, str]]:
    tokens, texts = [], {}
    for name, role, tenants in (
        ("admin", Role.ADMIN, ()),
        ("operator", Role.OPERATOR, ()),
        ("viewer", Role.VIEWER, ()),
        ("of-t-1", Role.OPERATOR, ("t-1",)),
        ("of-two", Role.OPERATOR, ("t-1", "t-2")),
    ):
        token, texts[name] = tk.make(name, role, tenants=tenants)
        tokens.append(token)
    return tokens, texts


async def serve(app: Holdfast, workers: int) -> AsyncIterator[Served]:
    tokens, texts = made_tokens()
    service = Service(app, tokens=tokens)
    api = create_api(service, workers=workers)
    served = Served(app, service, api, texts)
    async with api.router.lifespan_context(api):
        yield served
        for client in served.clients:
            await client.aclose()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async for one in serve(declared(), workers=1):
        yield one


@pytest.fixture
async def idle() -> AsyncIterator[Served]:
    """Without a worker: what is submitted waits."""
    async for one in serve(declared(), workers=0):
        yield one


@pytest.fixture
async def still() -> AsyncIterator[Served]:
    """As idle, by a clock that stands still: what is counted or kept for a while stays as it is."""
    async for one in serve(declared(clock=ManualClock()), workers=0):
        yield one
