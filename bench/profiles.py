"""A profile of a drain and of workflows: `python -m bench.profiles`.

Holdfast runs alone, with one worker in this process, on Redis and on SQLite. The profile is written
to bench/results/profile.md. The profiler makes Python about twice as slow, so CPU time is taken
from runs without it, and the profile gives only the shares. The server reports its own time (INFO
cpu, INFO commandstats).
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import redis

from bench.harness.paths import RESULTS
from bench.harness.trial_stores import redis_server
from holdfast import Context, Holdfast

TASKS = 20_000
WORKFLOWS, AT_ONCE = 2_000, 50
TOP_COMMANDS, TOP_FUNCTIONS = 14, 22
LIMIT_SECONDS = 120.0


class Spent(msgspec.Struct, kw_only=True):
    """CPU microseconds for one of what was done."""

    what: str
    store: str
    number: int
    ours: float
    server: float | None
    commands: list[tuple[str, float, float]]  # of the server: name, calls and µs for each


def main() -> None:
    lines = ["# Where the time goes", "", *_introduction()]
    with redis_server() as server:
        for store, url in (("redis", server.url), ("sqlite", None)):
            client = server.client() if store == "redis" else None
            lines += _of_store(store, url, client)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "profile.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def _introduction() -> list[str]:
    return [
        f"`python -m bench.profiles` wrote this: {TASKS:,} no-op tasks drained by one worker, and",
        f"{WORKFLOWS:,} workflows of five stages, {AT_ONCE} at once. CPU time, not elapsed time.",
        "",
    ]


def _of_store(store: str, url: str | None, client: redis.Redis | None) -> list[str]:
    lines: list[str] = []
    for what, number, run in (("task", TASKS, _drain), ("stage", WORKFLOWS * 5, _workflows)):
        with _empty(url, client) as trial:
            before = _server_seconds(client)
            ours = asyncio.run(run(trial))
            server = _server_seconds(client) - before
            spent = Spent(
                what=what,
                store=store,
                number=number,
                ours=ours / number * 1e6,
                server=server / number * 1e6 if client is not None else None,
                commands=_commands(client, number),
            )
        profile = cProfile.Profile()
        with _empty(url, client) as trial:
            asyncio.run(run(trial, profile))
        lines += [*_format_spent(spent), *_functions(profile)]
    return lines


@contextmanager
def _empty(url: str | None, client: redis.Redis | None) -> Iterator[str]:
    if url is not None and client is not None:
        client.flushall()
        client.config_resetstat()
        yield f"{url}/0"
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-profile-") as folder:
        yield f"sqlite:///{folder}/tasks.db"


def _server_seconds(client: redis.Redis | None) -> float:
    if client is None:
        return 0.0
    said: Any = client.info("cpu")
    return float(said["used_cpu_user_main_thread"] + said["used_cpu_sys_main_thread"])


def _commands(client: redis.Redis | None, number: int) -> list[tuple[str, float, float]]:
    if client is None:
        return []
    said: Any = client.info("commandstats")
    found = [
        (name.removeprefix("cmdstat_"), of["calls"] / number, of["usec"] / number)
        for name, of in said.items()
    ]
    return sorted(found, key=lambda one: -one[2])[:TOP_COMMANDS]


# -- what is run; each returns the CPU seconds of this process


async def _drain(url: str, profile: cProfile.Profile | None = None) -> float:
    app, done = Holdfast(url), asyncio.Event()
    left = TASKS

    @app.task("noop")
    async def noop(_: Context, __: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with app:
        await noop.submit_many(range(TASKS))
    async with app.running():
        return await _cpu_seconds_of(done.wait, profile)


async def _workflows(url: str, profile: cProfile.Profile | None = None) -> float:
    app = Holdfast(url)
    flow = app.workflow("flow", payload=int)
    for number in range(5):

        async def nothing(_: Context, __: int) -> None: ...

        flow.stage(name=f"stage{number}")(nothing)

    async def submit_each(numbers: range) -> None:
        for number in numbers:
            await (await flow.submit(number)).result(timeout=LIMIT_SECONDS)

    async def all_of_them() -> None:
        each = WORKFLOWS // AT_ONCE
        await asyncio.gather(
            *(submit_each(range(n * each, (n + 1) * each)) for n in range(AT_ONCE))
        )

    async with app.running():
        return await _cpu_seconds_of(all_of_them, profile)


async def _cpu_seconds_of(run: Callable[[], Any], profile: cProfile.Profile | None) -> float:
    if profile is not None:
        profile.enable()
    begun = time.process_time()
    async with asyncio.timeout(LIMIT_SECONDS):
        await run()
    spent = time.process_time() - begun
    if profile is not None:
        profile.disable()
    return spent


# -- the text


def _format_spent(spent: Spent) -> list[str]:
    title = f"## {spent.store.capitalize()}, for each {spent.what}"
    lines = [title, "", f"- our process: {spent.ours:.1f} µs of CPU"]
    if spent.server is not None:
        lines += [f"- the server, with what submits cost it: {spent.server:.1f} µs of CPU", ""]
        lines += ["| command | calls | µs |", "|---|---|---|"]
        lines += [f"| {name} | {calls:.2f} | {us:.2f} |" for name, calls, us in spent.commands]
    return [*lines, ""]


def _functions(profile: cProfile.Profile) -> list[str]:
    """The functions with the most time of their own, without folders."""
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out)
    total = stats.total_tt or 1.0  # type: ignore[attr-defined]
    rows = sorted(stats.stats.items(), key=lambda item: -item[1][2])  # type: ignore[attr-defined]
    lines = ["| our functions, by their own time | share |", "|---|---|"]
    for (file, _, name), (_, _, own, _, _) in rows[:TOP_FUNCTIONS]:
        where = re.sub(r".*/(?:holdfast|asyncio)/", "", file)
        where = where.rpartition("/")[2] if where.startswith("/") else where
        lines.append(f"| `{where}` {name} | {own / total:.1%} |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
