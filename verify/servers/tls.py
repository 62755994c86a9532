"""TLS in front of a server that has none, as the one out of the wheel."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Self

from verify.servers.process import HOST
from verify.servers.server import RedisServer

CHUNK_BYTES = 64 * 1024
OPEN_SECONDS = 60.0
CLOSE_SECONDS = 60.0


class TlsFront:
    """``with TlsFront(server) as front:`` connect to ``front.url``, trusting ``front.ca_file``."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-tls-")
        self.ca_file = Path(self._folder.name) / "ca.pem"
        self._tls = _new_tls_context(self.ca_file)
        self._port: int | None = None
        self._thread = threading.Thread(target=self._run, name="tls-front", daemon=True)
        self._open = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._closing: asyncio.Event
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._open.wait(OPEN_SECONDS):
            raise RuntimeError("the TLS front did not open")
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(CLOSE_SECONDS)
        self._folder.cleanup()

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError("the TLS front is not open")
        return self._port

    @property
    def url(self) -> str:
        return f"rediss://{self._server.credentials}{HOST}:{self.port}"

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        listener = await asyncio.start_server(self._accept, HOST, 0, ssl=self._tls)
        self._port = listener.sockets[0].getsockname()[1]
        self._open.set()
        await self._closing.wait()
        listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy bytes both ways until either side is done, then close both."""
        behind: asyncio.StreamWriter | None = None
        try:
            answers, behind = await asyncio.open_connection(HOST, self._server.port)
            pumps = [
                asyncio.create_task(_pump(reader, behind)),
                asyncio.create_task(_pump(answers, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the server is down: the client sees its connection end, as it would without us
        finally:
            for side in filter(None, (writer, behind)):
                side.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


def _new_tls_context(ca_file: Path) -> ssl.SSLContext:
    """Return a server context with a new certificate, and write that of its authority."""
    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST, "localhost").configure_cert(context)
    return context
