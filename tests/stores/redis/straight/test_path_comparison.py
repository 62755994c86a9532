"""The comparison of both ways sees what differs between them."""

import pytest

from tests.support.redis.path_comparison import Ways


async def test_the_same_steps_leave_the_same_keys(ways: Ways) -> None:
    await ways.compare(lambda d: d.run(stages=("one",)))
    await ways.compare(lambda d: d.suspend_new(tenant="t-2"))
    await ways.compare(lambda d: d.submit_many(3, tenant="t-1"))


async def test_a_key_that_only_one_way_has_is_seen(ways: Ways) -> None:
    await ways.straight.driver.submit()
    with pytest.raises(AssertionError):
        ways.compare_keys()
    await ways.general.driver.submit(payload="another")
    with pytest.raises(AssertionError):
        ways.compare_keys()
