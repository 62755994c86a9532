"""The times of stages on their way to Redis: what is in doubt is said to be so."""

from typing import Any, cast

import pytest
import redis

from holdfast.errors import StoreUnavailable
from holdfast.ports import BUCKETS, Timings
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.address import parse
from holdfast.stores.redis.encoding import stage_timings
from holdfast.stores.redis.partition import BATCH, Partition

REFUSED = redis.ConnectionError("Error 111 connecting to 127.0.0.1:1. Connection refused.")
CUT = redis.ConnectionError("Connection closed by server.")


class Part:
    """Of a partition, the call that matters here; from one of them on it cannot be reached."""

    def __init__(self, fails_at: int) -> None:
        self.calls, self.fails_at = 0, fails_at

    async def call(self, *_: Any, again: bool) -> None:
        assert not again, "a second time would be counted twice"
        self.calls += 1
        if self.calls == self.fails_at:
            raise told(REFUSED)


def told(error: redis.RedisError) -> StoreUnavailable:
    found = faults.translate(error, "redis", parse("redis://127.0.0.1:1"))
    assert isinstance(found, StoreUnavailable)
    return found


def timings(number: int) -> list[Timings]:
    counts = (1,) * (len(BUCKETS) + 1)
    return [
        Timings(type="t", stage=f"s-{n}", outcome="done", counts=counts, total_seconds=1.0)
        for n in range(number)
    ]


@pytest.mark.parametrize(("fails_at", "unwritten"), [(1, True), (2, False)])
async def test_behind_the_first_part_a_batch_is_not_unwritten(
    fails_at: int, unwritten: bool
) -> None:
    part = Part(fails_at)
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        await stage_timings.observe(cast(Partition, part), timings(BATCH))
    assert (part.calls, caught.value.unwritten) == (fails_at, unwritten)


@pytest.mark.parametrize(
    ("error", "unwritten"),
    [
        (REFUSED, True),
        (redis.TimeoutError("Timeout connecting to server"), True),
        (CUT, False),
        (redis.TimeoutError("Timeout reading from 127.0.0.1:1"), False),
    ],
)
def test_only_what_never_got_a_connection_is_surely_unwritten(
    error: redis.RedisError, unwritten: bool
) -> None:
    assert told(error).unwritten is unwritten
