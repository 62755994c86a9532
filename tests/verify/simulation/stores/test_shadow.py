"""SQLite and Redis behind the simulated worlds: told the same, they must answer the same."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec
import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.task.decide import lease_of
from holdfast.ports import Claimed
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Script
from holdfast.stores.redis.tasks import store
from holdfast.stores.sqlite.tasks import store as task_store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from verify.servers import RedisServer
from verify.simulation import run
from verify.simulation.__main__ import main
from verify.simulation.report import failure
from verify.simulation.stores.likeness import Pairing

# Lost replies, take-overs of several at once, many tenants; triggers, clocks that are set; plans;
# processes with the stages of different deploys.
SEEDS = (2, 8, 7, 4, 10, 5, 17, 1)
CHUNK = 20


@pytest.fixture(params=["sqlite", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shadow(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `run` takes for it."""
    if kind == "sqlite":
        return kind
    # In steps, those that lapse at once go back to their queue in another order, which is as good.
    monkeypatch.setattr(store, "MOVES", 500)
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


@pytest.mark.parametrize("seed", SEEDS)
def test_the_store_answers_as_the_model_does_at_every_step(
    kind: str, shadow: str, seed: int
) -> None:
    result = run(seed, shadow=shadow)
    assert result.broken is None, failure(result, shadow=kind)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(5))
def test_the_store_answers_as_the_model_does_in_many_worlds(
    kind: str, shadow: str, chunk: int
) -> None:
    for seed in range(2_000 + chunk * CHUNK, 2_000 + (chunk + 1) * CHUNK):
        result = run(seed, shadow=shadow)
        assert result.broken is None, failure(result, shadow=kind)


def test_the_shadow_does_not_change_the_world() -> None:
    assert run(2, shadow="sqlite").digest == run(2).digest


@contextmanager
def broken(name: str, right: str, wrong: str) -> Iterator[None]:
    """One line of a script is another."""
    script: Script = getattr(scripts, name)
    assert right in script.source
    with patch.object(scripts, name, Script(script.name, script.source.replace(right, wrong))):
        yield


@pytest.mark.parametrize(
    ("seed", "name", "right", "wrong"),
    [
        (2, "INSERT", "return active ~= r.id and not line_is_open(active)", "return false"),
        (8, "APPLY", "if r.version ~= t.expects then", "if false then"),
        (2, "CLAIM", "call('SET', lock, r.id, 'EX', lock_seconds)", ""),
        (2, "INSERT_TASKS", "if tenant and leaders[tenant] ~= id then", "if false then"),
    ],
)
def test_a_store_that_is_broken_on_purpose_is_found(
    redis_server: RedisServer, seed: int, name: str, right: str, wrong: str
) -> None:
    with broken(name, right, wrong):
        is_straight = name == "INSERT_TASKS"
        url = redis_server.url if is_straight else f"{redis_server.url}?straight=off"
        results = (run(one, shadow=url) for one in range(seed, seed + 15))
        found = next((result.broken for result in results if result.broken), None)
    assert found is not None
    assert found.invariant == "S1"


def test_a_sqlite_store_that_keeps_the_stages_of_older_code_is_found() -> None:
    with patch.object(task_store, "_write_submitted", lambda *_: None):
        result = run(1, shadow="sqlite")
    assert result.broken is not None
    assert "stages" in result.broken.message


def test_a_difference_is_told_with_seed_step_verb_and_both_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--start", "2", "--seeds", "1", "--processes", "1", "--shadow", "redis"]
    arguments += ["--straight", "off"]
    with broken("INSERT", "return active ~= r.id and not line_is_open(active)", "return false"):
        assert main(arguments) == 1
    said = capsys.readouterr().out
    assert "seed 2, step " in said
    assert "RedisStore answers load differently: at [0][1].place: 'line' and 'ready'" in said
    assert "watched: [['Task', " in said
    assert "shadow:  [['Task', " in said
    assert "--seed 2 --shadow redis --straight off" in said


# -- what counts as the same


@pytest.fixture
def claimed() -> Claimed:
    async def handed_out() -> Claimed:
        clock = ManualClock()
        store = MemoryStore(clock)
        driver = StoreDriver(store, clock)
        await store.tasks.insert([driver.submission(tenant="t")], depth_limit=10)
        (found,) = await store.tasks.claim(
            "w", request="r", queues=["default"], limit=1, lease_seconds=10.0
        )
        return found

    return asyncio.run(handed_out())


def with_fence(claimed: Claimed, fence: int) -> Claimed:
    lease = msgspec.structs.replace(lease_of(claimed.task), fence=fence, id=f"random-{fence}")
    task = msgspec.structs.replace(claimed.task, fence=fence, lease=lease)
    return msgspec.structs.replace(claimed, task=task)


def test_fences_and_lease_ids_may_be_others_if_they_are_always_the_same_others(
    claimed: Claimed,
) -> None:
    pairing, other = Pairing(), with_fence(claimed, 1_000)
    assert "unknown fence 1000" in str(pairing.difference([claimed], [other]))
    pairing.learn([claimed], [other])
    assert pairing.difference([claimed], [other]) is None
    assert "unknown fence 2000" in str(pairing.difference([claimed], [with_fence(claimed, 2_000)]))


def test_a_fence_that_does_not_rise_is_told(claimed: Claimed) -> None:
    pairing, later = Pairing(), with_fence(claimed, 2)
    pairing.learn([claimed], [with_fence(claimed, 1_000)])
    pairing.learn([later], [with_fence(claimed, 999)])
    assert "unknown fence 999" in str(pairing.difference([later], [with_fence(claimed, 999)]))


def test_times_may_differ_by_less_than_a_store_can_tell(claimed: Claimed) -> None:
    at = claimed.task.updated_at
    soon, later = (
        msgspec.structs.replace(claimed.task, updated_at=at + by) for by in (0.000001, 0.001)
    )
    pairing = Pairing()
    pairing.learn([claimed], [claimed])
    assert pairing.difference(claimed.task, soon) is None
    assert "updated_at" in str(pairing.difference(claimed.task, later))


def test_one_more_answer_and_another_error_are_differences() -> None:
    pairing = Pairing()
    assert pairing.difference([1], [1, 2]) == "at all: 1 and 2 elements"
    assert pairing.difference(InvalidInput("a"), InvalidInput("b")) is None
    assert pairing.difference(InvalidInput("a"), None) is not None
