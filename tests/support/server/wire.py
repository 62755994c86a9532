"""Requests as bytes on a connection, to send what no client library would."""

import json
import socket
from typing import Any

from holdfast import Context, Holdfast
from tests.server.conftest import declared
from tests.support.server.listener import Listening

APPLY = "/api/workflows/apply"
BIG = 10 * 1024 * 1024
BOUND_SECONDS = 60.0


def free() -> Holdfast:
    """Return an app with a task that takes any JSON."""
    app = declared(rate_limit=1e9)

    @app.task("free")
    async def nothing(ctx: Context, order: Any) -> None:
        return None

    return app


def kept(served: Listening) -> int:
    async def count() -> int:
        return sum((await served.app.store.views.stats()).by_status.values())

    found: int = served.do(count)
    return found


class Told:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1]) if raw else 0  # 0: it hung up
        pairs = (line.partition(":") for line in lines[1:])
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self.raw[:1000]
        return str(json.loads(self.body)["code"])


def send(served: Listening, *parts: bytes) -> Told:
    """Send the parts as they are on a new connection, and return the answer until it closes."""
    with socket.create_connection((served.host, served.port), timeout=BOUND_SECONDS) as line:
        try:
            for part in parts:
                line.sendall(part)
        except OSError:
            pass  # refused before all was sent
        return Told(heard(line))


def heard(line: socket.socket) -> bytes:
    found = b""
    try:
        while part := line.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def head(served: Listening, method: str, path: str, *lines: str | bytes) -> bytes:
    bearer = f"authorization: Bearer {served.tokens['admin']}"
    first = f"{method} {path} HTTP/1.1"
    usual = [first, "host: here", "connection: close", bearer]
    made = b"\r\n".join(x.encode("latin-1") if isinstance(x, str) else x for x in (*usual, *lines))
    return made + b"\r\n\r\n"


def ask(
    served: Listening, method: str, path: str, body: bytes | None = None, *lines: str | bytes
) -> Told:
    if body is None:
        return send(served, head(served, method, path, *lines))
    typed = () if any(str(x).lower().startswith("content-type") for x in lines) else (JSON,)
    length = f"content-length: {len(body)}"
    return send(served, head(served, method, path, length, *typed, *lines), body)


JSON = "content-type: application/json"


def order(payload: str = '"x"', **more: Any) -> bytes:
    """``payload`` as it is written."""
    rest = "".join(f", {json.dumps(name)}: {json.dumps(value)}" for name, value in more.items())
    return f'{{"type": "free", "waitSeconds": 0, "payload": {payload}{rest}}}'.encode(
        errors="surrogatepass"
    )
