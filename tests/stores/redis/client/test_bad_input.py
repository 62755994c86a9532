"""What a user can get wrong about a Redis store: told in one line that names the cause."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner, Result

from holdfast import Context, Holdfast
from holdfast.cli.exit_codes import Exit
from holdfast.cli.root import cli
from holdfast.domain.errors import StoreForeign, StoreUnusable
from tests.support.redis.redis_servers import StartRedis
from tests.support.runtime.helpers import BOUND_SECONDS
from verify.servers import RedisServer


def ran(url: str, *args: str, namespace: str = "executor") -> Result:
    env = {"HOLDFAST_STORE": url, "HOLDFAST_NAMESPACE": namespace}
    return CliRunner().invoke(cli, list(args or ["stats"]), env=env)


def told(result: Result, code: Exit) -> str:
    """The one line on stderr."""
    assert result.exit_code == code, result.output
    [line] = [line for line in result.stderr.splitlines() if not line.startswith("WARNING")]
    assert line.startswith("error: ")
    assert "Traceback" not in result.output
    return line


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://", "a host is missing"),
        ("redis://localhost:99999", "99999 is not a port"),
        ("redis://localhost/one", "not the number of a database"),
        ("redis://a,b", r"redis+sentinel://"),
        ("redis+sentinel://localhost", "/NAME"),
        ("redis+cluster://localhost?partitions=0", "partitions= is a number"),
        ("redis+cluster://localhost/1", "only one database"),
        ("redis://localhost?time=1", "known: straight, timeout"),
        ("rediss://localhost?ca=/no/such/file", "there is no file /no/such/file"),
        ("radis://localhost", "unknown store"),
    ],
)
def test_a_wrong_url_is_an_invalid_setting(url: str, says: str) -> None:
    line = told(ran(url), Exit.INVALID)
    assert says in line
    assert "HOLDFAST_STORE" in line


def test_nobody_at_the_address_is_a_store_error() -> None:
    line = told(ran("redis://127.0.0.1:1"), Exit.STORE)
    assert "error: 127.0.0.1:1 cannot be reached: connection refused" in line


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("redis://127.0.0.1:1", Exit.STORE, "127.0.0.1:1 cannot be reached"),
        ("redis://:6379", Exit.INVALID, "is not HOST or HOST:PORT"),
    ],
)
def test_a_worker_that_has_no_store_ends_with_one_line(
    tmp_path: Path, url: str, code: Exit, says: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "from holdfast import Context, Holdfast\napp = Holdfast()\n"
        "@app.task('echo')\nasync def echo(ctx: Context, text: str) -> str:\n    return text\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "worker", "mine:app"],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_STORE": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == code
    [line] = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line


def test_a_wrong_password_is_told_and_not_shown(start_redis: StartRedis) -> None:
    server = start_redis(password="right")
    line = told(ran(f"redis://:wr0ng@127.0.0.1:{server.port}"), Exit.STORE)
    assert "WRONGPASS" in line
    assert "check the user and the password" in line
    assert "wr0ng" not in line
    assert "NOAUTH" in told(ran(f"redis://127.0.0.1:{server.port}"), Exit.STORE)


def test_a_server_without_streams_is_told(start_redis: StartRedis) -> None:
    server = start_redis(rename_command={"XADD": "", "XREADGROUP": ""})
    line = told(ran(server.url), Exit.STORE)
    assert "lacks XADD, XREADGROUP" in line
    assert "rename-command" in line


@pytest.mark.parametrize("namespace", ["{executor}", "a{b", "a b", ""])
def test_a_namespace_with_braces_is_an_invalid_setting(namespace: str) -> None:
    line = told(ran("redis://127.0.0.1:1", namespace=namespace), Exit.INVALID)
    assert "namespace" in line.lower()


@pytest.mark.parametrize(("name", "kind"), [("meta", "hash"), ("queue:tasks", "stream")])
def test_a_foreign_key_under_our_names_is_told(
    redis_server: RedisServer, redis_namespace: str, name: str, kind: str
) -> None:
    with redis_server.client() as client:
        client.set(f"{redis_namespace}:{name}", "somebody else's")
    line = told(ran(redis_server.url, namespace=redis_namespace), Exit.STORE)
    assert f"{redis_namespace}:{name} is a string, not a {kind}" in line
    assert "HOLDFAST_NAMESPACE" in line
    assert line.endswith("[store-foreign]")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("format", "99", "has format 99"),
        ("format", "v1", "of another program"),
        ("partitions", "7", "made with 7 partitions"),
        ("partitions", "many", "of another program"),
    ],
)
def test_a_database_of_another_format_is_told_and_left_alone(
    redis_server: RedisServer, redis_namespace: str, field: str, value: str, says: str
) -> None:
    key = f"{redis_namespace}:meta"
    with redis_server.client() as client:
        client.hset(key, mapping={"format": "1", "partitions": "1", field: value})
        before = client.hgetall(key)
        line = told(ran(redis_server.url, namespace=redis_namespace), Exit.STORE)
        assert client.hgetall(key) == before
    assert says in line


def test_a_single_server_is_no_cluster(redis_server: RedisServer) -> None:
    url = redis_server.url.replace("redis:", "redis+cluster:")
    assert "is no Cluster: write redis://" in told(ran(url), Exit.STORE)


def test_a_single_server_is_no_sentinel(redis_server: RedisServer) -> None:
    url = f"{redis_server.url.replace('redis:', 'redis+sentinel:')}/main"
    assert "is no Sentinel: write redis:// in" in told(ran(url), Exit.STORE)


async def test_the_fallback_is_not_for_what_a_person_must_mend(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    with redis_server.client() as client:
        client.set(f"{redis_namespace}:counts", "somebody else's")
    app = Holdfast(redis_server.url, namespace=redis_namespace, fallback="memory")
    with pytest.raises(StoreUnusable, match="counts is a string, not a hash"):
        async with app:
            pass


@pytest.mark.parametrize("name", ["queue:tasks", "counts", "bell"])
async def test_a_foreign_key_that_appears_later_is_told_and_work_goes_on_without_it(
    redis_server: RedisServer, redis_namespace: str, name: str
) -> None:
    app = Holdfast(redis_server.url, namespace=redis_namespace, lease="1s")

    @app.task("echo")
    async def echo(ctx: Context, text: str) -> str:
        return text

    key = f"{redis_namespace}:{name}"
    with redis_server.client() as client:
        async with app.running():
            assert await (await echo.submit("a")).result(timeout=BOUND_SECONDS) == "a"
            put_in_place(client, key)
            with pytest.raises(StoreForeign, match="of another program under our names") as found:
                await echo.submit("b")
            assert key in str(found.value)
            client.delete(key)
            await app.store.admin.doctor(fix=True, limit=100)
            assert await (await echo.submit("c")).result(timeout=BOUND_SECONDS) == "c"


def put_in_place(client: redis.Redis, key: str) -> None:
    with client.pipeline() as pipe:
        pipe.delete(key)
        pipe.set(key, "somebody else's")
        pipe.execute()
