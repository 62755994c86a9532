"""Holdfast in a FastAPI application of one's own. The example is the one in docs/service.md."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from holdfast import Context, Holdfast, HoldfastError
from holdfast.integrations import fastapi as hf
from holdfast.server import Service
from holdfast.server.auth import tokens as tk
from tests.support.programs import run_python

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def opened(api: FastAPI, token: str = "") -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    transport = httpx.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://here", headers=headers) as client,
    ):
        yield client


@pytest.fixture
def engine() -> Holdfast:
    app = Holdfast("memory://")

    @app.task("mail.send")
    async def send(ctx: Context, to: str) -> str:
        return f"sent to {to}"

    return app


def admin() -> tuple[tk.Token, str]:
    return tk.make("admin", tk.Role.ADMIN)


async def test_workers_run_in_the_lifespan_and_the_router_serves_under_a_prefix(
    engine: Holdfast,
) -> None:
    token, text = admin()
    api = FastAPI(lifespan=hf.lifespan(engine, workers=1, tokens=[token]))
    api.include_router(hf.router(engine), prefix="/holdfast")
    body = {"type": "mail.send", "payload": "ann"}
    async with opened(api, text) as client:
        answer = await client.post("/holdfast/api/workflows/apply", json=body)
        assert (answer.status_code, answer.json()["result"]) == (200, "sent to ann")
        assert (await client.get("/holdfast/livez")).status_code == 200
        scale = await client.post("/holdfast/internal/workers/scale", json={"processes": 1})
        assert (scale.status_code, scale.json()["code"]) == (409, "no-pool")


async def test_without_tokens_nobody_is_let_in(engine: Holdfast) -> None:
    api = FastAPI(lifespan=hf.lifespan(engine))
    api.include_router(hf.router(engine))
    async with opened(api) as client:
        assert (await client.get("/api/types")).status_code == 401


async def test_the_router_alone_opens_the_engine_without_workers(engine: Holdfast) -> None:
    token, text = admin()
    service = Service(engine, tokens=[token])
    api = FastAPI()
    api.include_router(hf.router(service))
    body = {"type": "mail.send", "payload": "ann", "waitSeconds": 0}
    async with opened(api, text) as client:
        assert (await client.post("/api/workflows/apply", json=body)).status_code == 202
        assert (await client.get("/internal/workers")).json()["workers"] == []
    assert service.stopping.is_set()


async def test_ones_own_lifespan_finds_the_engine_open_and_its_state_is_kept(
    engine: Holdfast,
) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def own(api: FastAPI) -> AsyncIterator[dict[str, Any]]:
        seen.append(f"opened on {engine.store.url}")
        yield {"greeting": "hello"}
        seen.append(f"closed on {engine.store.url}")

    api = FastAPI(lifespan=hf.lifespan(engine, workers=0, then=own))
    async with api.router.lifespan_context(api) as state:
        assert state == {"greeting": "hello"}
        assert seen == ["opened on memory://"]
    assert seen == ["opened on memory://", "closed on memory://"]


async def test_the_dependency_is_the_engine(engine: Holdfast) -> None:
    api = FastAPI(lifespan=hf.lifespan(engine, workers=0))
    found: list[Holdfast] = []

    @api.get("/store")
    async def store(one: hf.Engine) -> str:
        found.append(one)
        return one.store.url

    async with opened(api) as client:
        assert (await client.get("/store")).json() == "memory://"
    assert found == [engine]


async def test_without_a_lifespan_the_dependency_says_what_is_missing(engine: Holdfast) -> None:
    api = FastAPI()

    @api.get("/store")
    async def store(one: hf.Engine) -> str:
        return one.store.url

    async with opened(api) as client:
        with pytest.raises(HoldfastError, match="lifespan=lifespan"):
            await client.get("/store")


async def test_the_applications_document_is_whole_and_is_not_shown_by_us(engine: Holdfast) -> None:
    api = FastAPI(lifespan=hf.lifespan(engine, workers=0), openapi_url=None)
    api.include_router(hf.router(engine), prefix="/holdfast")

    @api.get("/own")
    async def own() -> str:
        return "own"

    async with opened(api) as client:
        assert (await client.get("/holdfast/openapi.json")).status_code == 404
        document = api.openapi()
    assert {"/own", "/holdfast/api/types"} <= set(document["paths"])
    referred = set(re.findall(r"#/components/schemas/([\w-]+)", str(document)))
    assert referred <= set(document["components"]["schemas"])


async def test_it_can_be_opened_again(engine: Holdfast) -> None:
    api = FastAPI(lifespan=hf.lifespan(engine, workers=1))
    for _ in range(2):
        async with opened(api):
            assert api.state.holdfast.app is engine
        assert api.state.holdfast is None


# -- the example in the documentation


def example() -> str:
    page = (ROOT / "docs" / "service.md").read_text()
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


ASK = """
import asyncio, httpx
from shop import api

async def main():
    async with api.router.lifespan_context(api):
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            print((await client.post("/orders/7")).json())

asyncio.run(main())
"""


def test_the_example_runs(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(example())
    done = run_python(tmp_path, "-c", ASK)
    assert done.returncode == 0, done.stderr
    assert "shipped 7" in done.stdout
