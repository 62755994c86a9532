"""TLS: the whole way with a certificate that is trusted, and clear words where there is none."""

import pytest

from holdfast.domain.errors import StoreError, StoreUnusable
from holdfast.domain.task.state import Status
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from verify.servers import RedisServer, TlsFront


async def refused(url: str) -> StoreError:
    with pytest.raises(StoreError) as found:
        await RedisStore(url, ManualClock()).open()
    return found.value


async def test_a_task_goes_its_whole_way_over_tls(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    with TlsFront(redis_server) as front:
        clock = ManualClock()
        url = f"{front.url}?ca={front.ca_file}"
        store = RedisStore(url, clock, redis_namespace, time=clock.times)
        await store.open()
        driver = StoreDriver(store, clock)
        assert (await driver.complete(await driver.start())).status is Status.COMPLETED
        assert not await store.admin.doctor(fix=False, limit=10)
        await store.close()


async def test_another_authority_is_not_trusted(redis_server: RedisServer) -> None:
    with TlsFront(redis_server) as front, TlsFront(redis_server) as other:
        for url in (front.url, f"{front.url}?ca={other.ca_file}"):
            error = await refused(url)
            assert isinstance(error, StoreUnusable)
            assert "certificate" in str(error)
            assert "check ca= in HOLDFAST_STORE" in str(error)


async def test_plain_words_to_a_tls_port_are_told(redis_server: RedisServer) -> None:
    with TlsFront(redis_server) as front:
        error = await refused(front.url.replace("rediss://", "redis://"))
    assert "does it speak TLS? then write rediss://" in str(error)


async def test_tls_to_a_plain_port_is_told(redis_server: RedisServer) -> None:
    url = redis_server.url.replace("redis://", "rediss://")
    error = await refused(f"{url}?timeout=1s")  # it waits for more, and would for ever
    assert "does it speak TLS? if not, write redis://" in str(error)
