"""A stand-in of Telegram on loopback, in threads: the Bot API that answers go to, and the hand that
sends updates to a webhook.

    with TelegramApi(TOKEN) as api:
        api.webhook = (f"{service}/api/telegram/webhook", SECRET)
        api.send(update("hello"))
        assert api.got(1)[0].text == "hello to you"

It is as strict as the real one where that matters: who does not know the token is sent away, and
what is no message is refused.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

import httpx

BOUND_SECONDS = 60.0
TEXT_UNITS_MAX = 4096
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"


class Sent(NamedTuple):
    """A message of the bot, as it came."""

    chat_id: int
    text: str
    body: dict[str, Any]


class Refusal(NamedTuple):
    status: int
    says: str
    retry_after: int | None = None


FLOOD = Refusal(429, "Too Many Requests: retry after 7", 7)
BLOCKED = Refusal(403, "Forbidden: bot was blocked by the user")
BROKEN = Refusal(502, "Bad Gateway")


class TelegramApi:
    """Down until ``up``: the port is taken, and nobody listens. ``with`` brings it up."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.webhook: tuple[str, str] = ("", "")  # the address and the secret
        self.refusals: list[Refusal] = []  # for the next ones, in order
        self.attempts = 0
        self._sent: list[Sent] = []
        self._news = threading.Condition()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), _handler(self), bind_and_activate=False
        )
        self._server.daemon_threads = True
        self._server.server_bind()
        self._serving = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def up(self) -> None:
        self._server.server_activate()
        self._serving.start()

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._serving.is_alive():
            self._server.shutdown()
        self._server.server_close()

    # -- the hand

    def send(self, update: dict[str, Any], **headers: str) -> httpx.Response:
        url, secret = self.webhook
        return httpx.post(
            url, json=update, headers={SECRET_HEADER: secret} | headers, timeout=BOUND_SECONDS
        )

    # -- the Bot API

    @property
    def sent(self) -> list[Sent]:
        with self._news:
            return list(self._sent)

    def got(self, count: int) -> list[Sent]:
        """Waits until so many messages have come."""
        with self._news:
            found = self._news.wait_for(lambda: len(self._sent) >= count, BOUND_SECONDS)
        assert found, f"{len(self._sent)} messages instead of {count}"
        return self.sent

    def answer(self, path: str, given: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
        with self._news:
            self.attempts += 1
            refusal = self._refusal(path, given)
            if refusal is None:
                self._sent.append(Sent(given["chat_id"], given["text"], given))
            self._news.notify_all()
        if refusal is None:
            return 200, {"ok": True, "result": {"message_id": 1000 + len(self._sent)}}, {}
        told = {"ok": False, "error_code": refusal.status, "description": refusal.says}
        if refusal.retry_after is None:
            return refusal.status, told, {}
        told["parameters"] = {"retry_after": refusal.retry_after}
        return refusal.status, told, {"Retry-After": str(refusal.retry_after)}

    def _refusal(self, path: str, given: Any) -> Refusal | None:
        if path == f"/bot{self.token}/sendMessage":
            return self.refusals.pop(0) if self.refusals else _wrong(given)
        if path.startswith(f"/bot{self.token}/"):
            return Refusal(404, "Not Found: method not found")
        return Refusal(401, "Unauthorized")


def _wrong(given: Any) -> Refusal | None:
    match given:
        case {"chat_id": int(), "text": str(text)} if text.strip():
            units = len(text.encode("utf-16-le")) // 2
            return None if units <= TEXT_UNITS_MAX else Refusal(400, "message is too long")
    return Refusal(400, "Bad Request: message text is empty")


def _handler(api: TelegramApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, told, headers = api.answer(self.path, json.loads(body))
            said = json.dumps(told).encode()
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(said))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the path has the token in it."""

    return Handler


def update(
    text: str | None, *, number: int = 1, chat: int = 4711, message: int = 17, **more: Any
) -> dict[str, Any]:
    """Return an update as Telegram sends it, with fields that nobody asked for."""
    sender = {"id": 4711, "is_bot": False, "first_name": "Ann", "username": "ann"}
    told = {
        "message_id": message,
        "from": sender | {"language_code": "en"},
        "chat": {"id": chat, "type": "private", "first_name": "Ann"},
        "date": 1_769_860_800,
    }
    if text is not None:
        told |= {"text": text}
    return {"update_id": number, "message": told | more}
