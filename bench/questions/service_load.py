"""A load on the service, in a process of its own: `python -m bench.questions.service_load`.

The load is open: each request is due at a fixed time, whatever became of those before it, and its
latency counts from then. So a service that is slow for a while cannot hide it by being asked less.
Bare streams and no HTTP library: the asking shall cost little beside the answering.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import resource
import time
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from bench.harness.loop import run
from bench.questions.service_app import TYPE

PATH = "/api/tasks"
LATE_SECONDS = 30.0  # without an answer for so long, the load is given up
ACCEPTED = 202


class ServiceLoad(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    token: str
    rate: float  # requests a second, on all connections
    seconds: float
    connections: int
    batch: int = 1  # tasks in a request


class LoadTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The answers and latencies of one load, as its callers saw them."""

    asked: int
    accepted: int  # requests
    took_seconds: float  # from the first due time to the last answer
    p50_ms: float
    p99_ms: float
    max_ms: float
    answers: dict[str, int]  # how often each status
    cpu_seconds: float  # of the load itself


def request_of(load: ServiceLoad) -> bytes:
    works = [{"type": TYPE, "payload": number} for number in range(load.batch)]
    body = msgspec.json.encode({"tasks": works})
    head = [
        f"POST {PATH} HTTP/1.1",
        f"Host: {urlsplit(load.url).netloc}",
        f"Authorization: Bearer {load.token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def send_requests(load: ServiceLoad) -> LoadTimes:
    """Send the requests of the load, each connection in its turn."""
    begun = time.perf_counter()
    lines = [_line(load, number, begun) for number in range(load.connections)]
    every = [one for line in await asyncio.gather(*lines) for one in line]
    took = time.perf_counter() - begun
    latencies = sorted(latency for latency, _ in every)
    statuses = Counter(status for _, status in every)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return LoadTimes(
        asked=len(every),
        accepted=statuses[ACCEPTED],
        took_seconds=took,
        p50_ms=share(latencies, 0.5) * 1000,
        p99_ms=share(latencies, 0.99) * 1000,
        max_ms=latencies[-1] * 1000,
        answers={str(status): count for status, count in sorted(statuses.items())},
        cpu_seconds=used.ru_utime + used.ru_stime,
    )


def share(ordered: Sequence[float], part: float) -> float:
    return ordered[math.ceil(part * len(ordered)) - 1]


async def _line(load: ServiceLoad, number: int, begun: float) -> list[tuple[float, int]]:
    """One connection, kept alive; latency and status of each of its requests."""
    parts, request = urlsplit(load.url), request_of(load)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    found: list[tuple[float, int]] = []
    try:
        for turn in range(number, math.ceil(load.rate * load.seconds), load.connections):
            due = begun + turn / load.rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            writer.write(request)
            async with asyncio.timeout(LATE_SECONDS):
                status = await _answer(reader)
            found.append((time.perf_counter() - due, status))
    finally:
        writer.close()
    return found


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, _, rest = head.partition(b"\r\ncontent-length:")
    await reader.readexactly(int(rest.partition(b"\r\n")[0]))
    return int(head[9:12])


def main() -> None:
    """The load, as JSON, is the only argument."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load")
    load = msgspec.json.decode(parser.parse_args().load, type=ServiceLoad)
    print(json.dumps(msgspec.to_builtins(run(send_requests(load)))))


if __name__ == "__main__":
    main()
