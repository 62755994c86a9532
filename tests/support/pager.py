"""A receiver of webhooks in a thread, for tests that are no coroutines; it keeps what it hears."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from holdfast.notify.signature import Secret, verify
from tests.support.notified_app import HOOK_SECRET, hooks_file


class Pager:
    def __init__(self, folder: Path, port: int, *events: str) -> None:
        self.said: list[dict[str, Any]] = []  # each once, however often it is sent
        self._ids = set[str]()
        self.url = f"http://127.0.0.1:{port}/page"
        told = {"url": self.url, "events": list(events)}
        self.settings = {
            "HOLDFAST_WEBHOOKS": str(hooks_file(folder, oncall=told)),
            "HOLDFAST_WEBHOOK_ALLOW": "127.0.0.1",
            "HOLDFAST_WEBHOOK_TIMEOUT": "30s",
        }

    def hear(self, headers: dict[str, str], body: bytes) -> None:
        verify(Secret.parse(HOOK_SECRET), headers, body)
        if headers["webhook-id"] not in self._ids:
            self._ids.add(headers["webhook-id"])
            self.said.append(msgspec.json.decode(body))

    def told_of(self, code: str) -> list[str]:
        return [one["type"] for one in self.said if one["data"]["code"] == code]


@contextmanager
def pager(folder: Path, *events: str) -> Iterator[Pager]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.hear(dict(self.headers), body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Not on the screen."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Pager(folder, server.server_port, *events)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
