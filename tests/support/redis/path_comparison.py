"""The same steps on a store with the straight path and on one without: what differs is a defect.

`ways` is the fixture; ``await ways.compare(step)`` takes a step on both stores. It compares what
the step returned and every key that the stores have then.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

import msgspec
import pytest
import redis
from msgspec.structs import replace

from holdfast.domain.task import decide
from holdfast.stores.redis.client.client import Script
from holdfast.stores.redis.keys import GROUP
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from verify.servers import RedisServer

Step: TypeAlias = Callable[[StoreDriver], Awaitable[Any]]
Keys: TypeAlias = dict[str, tuple[str, object]]  # by name: its type, and what it holds
Lives: TypeAlias = dict[str, int]  # in milliseconds; negative: it does not expire
SLACK_MS = 120_000  # between the steps on one store and on the other; the shortest life is an hour

# What the server or chance chooses: the number of a stream's entry, and the secret of a lease.
_ENTRY = re.compile(r"\b\d{13}-\d+\b")
_SECRET = re.compile(r"(?<=:)[0-9a-f]{16}(?=:)")
_READS = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "list": ("LRANGE", 0, -1),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
}


def on_task(method: str, task_id: str, *args: Any, **options: Any) -> Step:
    """Return a step that calls the driver's method with the task as it is stored."""

    async def step(driver: StoreDriver) -> Any:
        return await getattr(driver, method)(await driver.load(task_id), *args, **options)

    return step


def finish_after_loss(task_id: str, *, again: bool) -> Step:
    """Return a step that finishes a stage whose lease has lapsed; ``again``: another has it."""

    async def step(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        await driver.lapse()
        if again:
            await driver.claim("w-2")
        return await driver.apply(done)

    return step


def finish_under_forged_lease(task_id: str) -> Step:
    """Return a step that finishes a stage under a lease that was never given out."""

    async def step(driver: StoreDriver) -> Any:
        task = await driver.load(task_id)
        forged = replace(decide.lease_of(task), id="0-0:0123456789abcdef:1:2")
        return await driver.apply(await driver.done(replace(task, lease=forged)))

    return step


class OneWay:
    """A store of its own, the hands on it, and the scripts that it was sent."""

    def __init__(
        self, server: RedisServer, namespace: str, *, straight: bool, user: str = ""
    ) -> None:
        self.clock = ManualClock()
        url = server.url.replace("//", f"//{user}@") if user else server.url
        url = url if straight else f"{url}?straight=off"
        self.store = RedisStore(url, self.clock, namespace, time=self.clock.times)
        self.driver = StoreDriver(self.store, self.clock)
        self.sent: list[str] = []
        self._namespace, self._server = namespace, server
        self._heard = "0-0"  # the last entry of the bell that was read
        self._watch_scripts()

    def _watch_scripts(self) -> None:
        client = self.store._client
        call = client.call

        async def call_and_note(script: Script, *args: Any, **options: Any) -> Any:
            self.sent.append(script.name)
            return await call(script, *args, **options)

        client.call = call_and_note  # type: ignore[method-assign]

    def keys(self) -> tuple[Keys, Lives]:
        """Return what every key of the store holds, and its time to live.

        Of the bell: the topics that it was rung for since the last call. A batch of which a part
        goes the general way rings twice.
        """
        with self._server.client() as client:
            keys, lives = read_keys(client, self._namespace)
            heard = client.xrange(f"{self._namespace}:bell", min=f"({self._heard}")
        self._heard = heard[-1][0] if heard else self._heard
        keys[":bell"] = "stream", {topic for _, topics in heard for topic in topics}
        return keys, lives

    def ask(self, command: str, name: str, *args: object) -> Any:
        """Send a plain command about a key; ``name`` is without the namespace."""
        with self._server.client() as client:
            ask: Callable[..., Any] = client.execute_command
            return ask(command, f"{self._namespace}:{name}", *args)

    def damage(self, name: str, command: str = "", *args: str) -> None:
        """Delete a key of the store, and put something else there."""
        self.ask("DEL", name)
        if command:
            self.ask(command, name, *args)


class Ways:
    """The straight way and the general one."""

    def __init__(self, straight: OneWay, general: OneWay) -> None:
        self.straight, self.general = straight, general
        self.both = (straight, general)
        self.damaged = False  # by the test, which leaves what the doctors would find

    async def compare(self, step: Step) -> Any:
        """Take a step both ways, compare, and return what the straight way has returned."""
        returned = await self.compare_answers(step)
        self.compare_keys()
        return returned

    async def compare_answers(self, step: Step) -> Any:
        """Compare only what is returned: for a step that reads."""
        returned = [await step(way.driver) for way in self.both]
        assert comparable(returned[0]) == comparable(returned[1])
        return returned[0]

    def compare_keys(self) -> None:
        (keys, lives), (other_keys, other_lives) = self.straight.keys(), self.general.keys()
        assert keys.keys() == other_keys.keys()
        for name, content in keys.items():
            assert content == other_keys[name], name
        differ = {name for name, life in lives.items() if abs(life - other_lives[name]) > SLACK_MS}
        assert not differ

    def advance(self, seconds: float) -> None:
        for way in self.both:
            way.clock.advance(seconds)

    def scripts(self) -> list[str]:
        """Return the names of the scripts that the straight way has sent since the last call."""
        sent, self.straight.sent = self.straight.sent, []
        return sent

    def ask(self, command: str, name: str, *args: object) -> None:
        """Send a plain command about a key to both stores."""
        for way in self.both:
            way.ask(command, name, *args)

    def damage(self, name: str, command: str = "", *args: str) -> None:
        for way in self.both:
            way.damage(name, command, *args)

    async def mend(self) -> None:
        """Let the doctors repair what was damaged; what they leave is the same."""
        for way in self.both:
            await way.store.admin.doctor(fix=True, limit=100)
        self.compare_keys()


@asynccontextmanager
async def opened_ways(server: RedisServer, namespace: str) -> AsyncIterator[Ways]:
    """Open both ways, each with an empty store; in the end their doctors find nothing."""
    ways = Ways(
        OneWay(server, f"{namespace}-on", straight=True),
        OneWay(server, f"{namespace}-off", straight=False),
    )
    async with AsyncExitStack() as stack:
        for way in ways.both:
            await way.store.open()
            stack.push_async_callback(way.store.close)
        yield ways
        for way in ways.both:
            findings = await way.store.admin.doctor(fix=False, limit=100)
            assert ways.damaged or list(findings) == []


@pytest.fixture
async def ways(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Ways]:
    async with opened_ways(redis_server, redis_namespace) as ways:
        yield ways


def comparable(value: object) -> object:
    """Return plain data without what differs from run to run."""
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, comparable(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        return {comparable(key): comparable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, map(comparable, value)))
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return _SECRET.sub("SECRET", _ENTRY.sub("ENTRY", value))
    return value


def read_keys(client: redis.Redis, namespace: str) -> tuple[Keys, Lives]:
    """Read every key below a namespace, in two round trips beside the scan."""
    names = sorted(client.scan_iter(f"{namespace}:*", count=10_000))
    pipeline: Any = client.pipeline(transaction=False)
    for name in names:
        pipeline.type(name)
        pipeline.pttl(name)
    facts = pipeline.execute()
    types, lives = facts[::2], facts[1::2]
    for name, kind in zip(names, types, strict=True):
        command, *options = _READS[kind]
        pipeline.execute_command(command, name, *options)
        if kind == "stream":
            pipeline.xpending_range(name, GROUP, "-", "+", 10_000)
    contents = iter(pipeline.execute(raise_on_error=False))
    short = [name[len(namespace) :] for name in names]
    keys: Keys = {}
    for name, kind in zip(short, types, strict=True):
        content = _content(kind, next(contents), next(contents) if kind == "stream" else None)
        keys[name] = kind, comparable(content)
    return keys, dict(zip(short, lives, strict=True))


def _content(kind: str, content: Any, pending: Any) -> object:
    if kind == "stream":
        entries = [fields for _, fields in content]
        if isinstance(pending, Exception):  # it has no group
            return entries, None
        return entries, [facts["consumer"] for facts in pending]
    if kind == "set":
        return sorted(content)
    return content
