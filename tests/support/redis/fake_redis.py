"""A server of a few lines that answers as a test wants it to: real ones cannot be made to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import hiredis

Answer = Callable[[list[bytes]], bytes | None]  # None: hang up; nothing: leave them waiting


class FakeRedis:
    def __init__(self, answer: Answer) -> None:
        self.commands: list[list[bytes]] = []  # all but PING
        self.asked = asyncio.Event()
        self.port = 0
        self._answer = answer
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def close(self) -> None:
        talks = list(self._talks)
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = hiredis.Reader()
        try:
            while data := await reader.read(4096):
                heard.feed(data)
                while (command := heard.gets()) is not False:
                    reply = self._replied(command)
                    if reply is None:
                        return
                    writer.write(reply)
        finally:
            writer.close()
            await writer.wait_closed()

    def _replied(self, command: list[bytes]) -> bytes | None:
        if command == [b"PING"]:
            return b"+PONG\r\n"
        self.commands.append(command)
        self.asked.set()
        return self._answer(command)


@asynccontextmanager
async def fake_redis(answer: Answer) -> AsyncIterator[FakeRedis]:
    fake = FakeRedis(answer)
    async with await asyncio.start_server(fake.accept, "127.0.0.1", 0) as listening:
        fake.port = listening.sockets[0].getsockname()[1]
        try:
            yield fake
        finally:
            await fake.close()
