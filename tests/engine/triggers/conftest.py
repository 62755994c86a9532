"""A task to be fired by triggers, and an engine that runs it."""

import pytest

from holdfast import Context, Holdfast
from holdfast.engine.declare import AsyncTask
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine

Echo = AsyncTask[str, str]


@pytest.fixture
def echo(app: Holdfast) -> Echo:
    @app.task("echo")
    async def echo(ctx: Context, text: str) -> str:
        return text

    return echo


@pytest.fixture
def engine(app: Holdfast, echo: Echo, holdfast_engine: MakeEngine) -> Engine:
    return holdfast_engine(app)
