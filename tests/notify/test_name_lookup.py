"""A stranger's name server that hangs holds up nobody but the stranger, and no exit."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.domain.errors import NotDelivered
from holdfast.notify.addresses import Allowed
from holdfast.notify.name_lookup import CannotResolveNow
from holdfast.notify.post import Answered, Poster
from tests.support.sinks.receiver import Receiver

GOOD = "good.test"
SOON_SECONDS, BOUND_SECONDS = 0.1, 60.0
MANY, UNDER_WAY_MAX = 32, 128


class Names:
    """Those that begin with ``evil`` hang until the end of the test."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._news, self._hanging = threading.Condition(), 0
        self._system = socket.getaddrinfo

    def resolve(self, host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host == GOOD:
            return self._system("127.0.0.1", port, *rest, **more)
        if not str(host).startswith("evil"):
            return self._system(host, port, *rest, **more)
        with self._news:
            self._hanging += 1
            self._news.notify_all()
        self.over.wait()
        raise socket.gaierror("no such name")

    async def hang(self, count: int) -> None:
        def seen() -> bool:
            with self._news:
                return self._news.wait_for(lambda: self._hanging >= count, BOUND_SECONDS)

        assert await asyncio.to_thread(seen), f"{self._hanging} names hang instead of {count}"

    def end(self) -> None:
        self.over.set()
        for one in threading.enumerate():
            if one.name == "holdfast-resolver":
                one.join(BOUND_SECONDS)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    found = Names()
    monkeypatch.setattr(socket, "getaddrinfo", found.resolve)
    yield found
    found.end()


def poster(timeout_seconds: float = BOUND_SECONDS) -> Poster:
    return Poster(Allowed.parse(GOOD), timeout_seconds=timeout_seconds)


async def post_to_evil(sender: Poster, count: int) -> list[str]:
    """What was said of each, when all have ended."""
    posts = [sender.post(f"https://evil{number}.test/", b"{}", {}) for number in range(count)]
    ended = await asyncio.gather(*posts, return_exceptions=True)
    assert all(isinstance(one, NotDelivered | CannotResolveNow) for one in ended), ended
    return [str(one).partition(".test ")[2] or str(one) for one in ended]


async def post_to_good() -> Answered:
    async with Receiver() as receiver:
        return await poster().post(receiver.url(host=GOOD), b"{}", {})


async def test_a_healthy_host_is_served_while_many_names_hang(names: Names) -> None:
    sender = poster()
    evil = asyncio.create_task(post_to_evil(sender, MANY))
    await names.hang(MANY)
    assert (await post_to_good()).status == 200
    assert not evil.done()
    names.end()
    assert set(await evil) == {"has a name that does not resolve"}


async def test_so_many_names_are_under_way_those_included_that_nobody_waits_for(
    names: Names,
) -> None:
    given_up = await post_to_evil(poster(SOON_SECONDS), UNDER_WAY_MAX + 1)
    await names.hang(UNDER_WAY_MAX)
    assert given_up.pop() == "too many lookups are waiting for an answer"
    assert set(given_up) == {"did not answer in 0.1 s"}
    with pytest.raises(CannotResolveNow, match="too many lookups"):
        await post_to_good()
    names.end()
    assert (await post_to_good()).status == 200


async def test_a_thread_that_cannot_be_had_is_not_delivered_and_takes_no_place(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        said = await post_to_evil(poster(), UNDER_WAY_MAX + 1)
    assert set(said) == {"the system cannot start a thread"}
    assert (await post_to_good()).status == 200


EXITING = """
import asyncio, socket, threading
from holdfast.domain.errors import NotDelivered
from holdfast.notify.addresses import Allowed
from holdfast.notify.post import Poster

def hang(*_, **__):
    threading.Event().wait()

async def main():
    poster = Poster(Allowed(), timeout_seconds=0.1)
    try:
        await poster.post("https://evil.test/", b"{}", {})
    except NotDelivered as error:
        print(error)

socket.getaddrinfo = hang
asyncio.run(main())
"""


def test_a_process_ends_while_a_name_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXITING],
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=True,
    )
    assert done.stdout == "https://evil.test did not answer in 0.1 s\n"
    assert done.stderr == ""
