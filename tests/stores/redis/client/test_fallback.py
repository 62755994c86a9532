"""``fallback = "memory"`` with Redis (P10): only where it cannot be reached, only at the start."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreFull, StoreUnavailable, StoreUnusable
from tests.support.redis.fake_redis import fake_redis
from tests.support.redis.redis_outages import Crew
from tests.support.redis.redis_servers import StartRedis
from tests.support.runtime.helpers import within_bounds
from verify.servers import RedisServer

APP = """
from holdfast import Holdfast

app = Holdfast()
"""


@pytest.fixture
def gone(start_redis: StartRedis) -> RedisServer:
    """It may come back, on the same port."""
    server = start_redis(appendonly=True)
    server.kill()
    return server


async def opened(url: str, **settings: Any) -> None:
    async with Holdfast(url, **settings):
        pass


async def test_without_the_fallback_a_server_out_of_reach_is_an_error_that_names_it(
    gone: RedisServer,
) -> None:
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{gone.port} cannot be reached"):
        await opened(gone.url)


async def test_with_it_the_app_starts_on_memory_says_so_and_stays_there(
    gone: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    crew = Crew(gone.port, fallback="memory")
    crew.gate.set()
    async with crew.app.running():
        [said] = [record for record in caplog.records if record.name == "holdfast"]
        assert said.levelno == logging.WARNING
        assert "starting with a store in memory, which keeps nothing" in said.getMessage()
        assert f"127.0.0.1:{gone.port}" in said.getMessage()
        assert crew.app.degraded
        assert crew.app.in_memory
        assert not crew.app.store.durable
        assert await within_bounds((await crew.submit(1)).result()) == 2
        gone.start()
        assert await within_bounds((await crew.submit(2)).result()) == 4
        assert crew.app.in_memory
    with gone.client() as client:
        assert client.dbsize() == 0


async def test_a_new_start_finds_the_server_that_is_back(gone: RedisServer) -> None:
    crew = Crew(gone.port, fallback="memory")
    async with crew.app:
        assert crew.app.degraded
    gone.start()
    async with crew.app:
        assert not crew.app.in_memory
        assert not crew.app.degraded


async def test_a_server_that_goes_away_later_is_an_outage_and_no_switch(
    start_redis: StartRedis,
) -> None:
    server = start_redis(appendonly=True, appendfsync="always")
    crew = Crew(server.port, fallback="memory")
    crew.gate.set()
    async with crew.app.running():
        server.kill()
        with pytest.raises(StoreUnavailable):
            await crew.submit(1)
        assert not crew.app.in_memory
        assert not crew.app.degraded
        server.start()
        assert await within_bounds((await crew.submit(1)).result()) == 2


async def test_a_person_must_mend_a_wrong_password(start_redis: StartRedis) -> None:
    server = start_redis(password="right")
    for login in ("", ":wrong@", "nobody:wrong@"):
        with pytest.raises(StoreUnusable, match="check the user and the password"):
            await opened(f"redis://{login}127.0.0.1:{server.port}", fallback="memory")


async def test_a_person_must_mend_wrong_settings(start_redis: StartRedis) -> None:
    server = start_redis(maxmemory="64mb", lines=["maxmemory-policy allkeys-lru"])
    with pytest.raises(StoreUnusable, match="noeviction"):
        await opened(server.url, fallback="memory")


async def test_what_is_no_redis_is_no_reason_either() -> None:
    async with fake_redis(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as other:
        with pytest.raises(StoreUnusable, match="does not speak Redis's protocol"):
            await opened(other.url, fallback="memory")


async def test_a_server_without_memory_is_within_reach(start_redis: StartRedis) -> None:
    server = start_redis(maxmemory="1", lines=["maxmemory-policy noeviction"])
    with pytest.raises(StoreFull, match="no memory left"):
        await opened(server.url, fallback="memory")


def said_by(folder: Path, url: str, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(APP)
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *args],
        cwd=folder,
        env=env | {"HOLDFAST_STORE": url, "HOLDFAST_FALLBACK": "memory"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "args", [("worker", "shop:app"), ("doctor",), ("stats",), ("tasks", "list")], ids=" ".join
)
def test_the_command_line_never_falls_back(
    gone: RedisServer, tmp_path: Path, args: tuple[str, ...]
) -> None:
    """It would show, or serve, a memory of its own."""
    done = said_by(tmp_path, gone.url, *args)
    assert done.returncode == 5, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert last.endswith("[store-unavailable]")
    assert "Traceback" not in done.stderr
