"""A small OpenAI-compatible endpoint that needs no network, and that fails when it is told to.

    python endpoint.py --port 8081

POST /v1/chat/completions answers with a sentence of the first note in the prompt.
POST /control with {"fail": "503", "times": 2} makes the next two calls fail, all of them without
`times`; the ways are below. {} makes all well. GET /control says how many calls there were.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REFUSALS = ("503", "429", "401")  # with {"retryAfter": 2} they say so
WAYS = (*REFUSALS, "hang", "malformed", "empty", "uncited")
HANG_SECONDS = 600.0
NOTE = re.compile(r"^\[(\w+)\]\n((?:.+\n?)+)", re.MULTILINE)


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.calls = 0
        self.orders: dict[str, Any] = {}

    def told(self, orders: dict[str, Any]) -> None:
        """From now on; whoever hangs is let go."""
        with self.lock:
            self.orders = orders
            self.released.set()
            self.released = threading.Event()

    def begin(self) -> tuple[dict[str, Any], threading.Event]:
        """How this call fails, and what lets it go if it hangs."""
        with self.lock:
            self.calls += 1
            left = self.orders.get("times")
            if left is not None:
                self.orders = {**self.orders, "times": left - 1} if left > 0 else {}
            return self.orders, self.released

    def state(self) -> dict[str, Any]:
        with self.lock:
            return {"calls": self.calls, **self.orders}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_GET(self) -> None:
        self.answer(200, self.server.state())

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        if self.path == "/control":
            self.control(sent)
        elif self.path == "/v1/chat/completions":
            self.complete(sent)
        else:
            self.answer(404, {"error": {"message": "no such path"}})

    def control(self, orders: dict[str, Any]) -> None:
        if orders.get("fail") not in (*WAYS, None):
            self.answer(422, {"error": {"message": f"fail: one of {', '.join(WAYS)}"}})
            return
        self.server.told(orders)
        self.answer(200, self.server.state())

    def complete(self, order: dict[str, Any]) -> None:
        orders, released = self.server.begin()
        way = orders.get("fail")
        if way == "hang":
            released.wait(HANG_SECONDS)
        if way in REFUSALS:
            refusal = {"error": {"message": "as ordered"}}
            self.answer(int(way), refusal, retry_after=orders.get("retryAfter"))
        elif way == "malformed":
            self.answer(200, {"choices": "none today"})
        else:
            self.answer(200, completion(order, way))

    def answer(self, status: int, body: dict[str, Any], retry_after: int | None = None) -> None:
        packed = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(packed)))
        if retry_after is not None:
            self.send_header("retry-after", str(retry_after))
        self.end_headers()
        self.wfile.write(packed)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what matters is told by GET /control."""


def completion(order: dict[str, Any], way: str | None) -> dict[str, Any]:
    system, user = (message["content"] for message in order["messages"])
    note, text = NOTE.findall(system)[0]
    sentence = fitting(text, user)
    said = {"empty": "", "uncited": sentence}.get(way or "", f"{sentence} [{note}]")
    message = {"role": "assistant", "content": said}
    return {
        "object": "chat.completion",
        "model": order["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


def fitting(text: str, question: str) -> str:
    """The sentence that has most words in common with the question."""
    asked = set(question.lower().split())
    sentences = re.split(r"(?<=[.!?])\s+", " ".join(text.split()))
    return max(sentences, key=lambda one: len(asked & set(one.lower().split())))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8081, help="0: any that is free")
    endpoint = Endpoint(parser.parse_args().port)
    print(f"listening on http://127.0.0.1:{endpoint.server_port}", flush=True)
    endpoint.serve_forever()


if __name__ == "__main__":
    main()
