"""To look at a Redis where there is no store makes none, and says so."""

import asyncio

import pytest
from typer.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.root import cli
from holdfast.testing.servers import RedisServer


@pytest.mark.parametrize("command", ["doctor", "alerts", "stats", "suspended list", "prune"])
def test_a_wrong_namespace_is_no_healthy_store(
    redis_server: RedisServer, redis_namespace: str, command: str
) -> None:
    env = {"HOLDFAST_STORE": redis_server.url, "HOLDFAST_NAMESPACE": redis_namespace}
    result = CliRunner().invoke(cli, command.split(), env=env)
    assert result.exit_code == Exit.STORE
    assert f"no store at {redis_namespace} on {redis_server.url}" in result.stderr
    assert "HOLDFAST_NAMESPACE [store-unavailable]" in result.stderr
    with redis_server.client() as client:
        assert list(client.scan_iter(f"{redis_namespace}*")) == []


def test_once_somebody_has_worked_there_it_is_looked_at(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    async def work() -> None:
        async with Holdfast(redis_server.url, namespace=redis_namespace):
            pass

    asyncio.run(work())
    env = {"HOLDFAST_STORE": redis_server.url, "HOLDFAST_NAMESPACE": redis_namespace}
    assert CliRunner().invoke(cli, ["stats"], env=env).exit_code == Exit.OK
