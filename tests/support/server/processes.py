"""`holdfast serve` as people run it: a process, an address, signals."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from holdfast.server.auth import tokens as tk
from verify.servers.poll import until

BOUND_SECONDS = 60.0
LISTENING = re.compile(r"(http://\S+?)[\"}]*$")

APP = """
import asyncio, threading
from holdfast import Context, Holdfast, Permanent

app = Holdfast()

@app.task("mail.send")
async def send(ctx: Context, to: str) -> str:
    return to

flow = app.workflow("slow", payload=str)

@flow.stage
async def first(ctx: Context, order: str) -> str:
    if order == "forever":
        await asyncio.Event().wait()
    return order

plain = app.workflow("plain", payload=str)

@plain.stage
def hangs(ctx: Context, order: str) -> None:
    threading.Event().wait(600)
"""


class Answer:
    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status, self.body, self.headers = status, body, headers

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Line:
    """One connection, kept alive."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        self._line = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=BOUND_SECONDS
        )
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        sent = None if body is None else json.dumps(body)
        self._line.request(method, path, sent, self._headers)
        answer = self._line.getresponse()
        return Answer(answer.status, answer.read(), dict(answer.getheaders()))

    def close(self) -> None:
        self._line.close()


class Serving:
    def __init__(
        self,
        folder: Path,
        *args: str,
        app: str = APP,
        files: str = "",
        **settings: str,
    ) -> None:
        """Start the service; ``files`` has its soft and hard limit on open files, "64 400"."""
        self.folder = folder
        limited = [
            "sh",
            "-c",
            'ulimit -Sn $0; ulimit -Hn $1; shift; exec "$@"',
            *files.split(),
        ]
        (folder / "shop.py").write_text(app)
        self.store = f"sqlite:///{folder}/tasks.db"
        env = {name: v for name, v in os.environ.items() if not name.startswith("HOLDFAST_")}
        ours = {"HOLDFAST_STORE": self.store, "PYTHONDONTWRITEBYTECODE": "1"}
        ours["HOLDFAST_STOP_DELAY"] = "0"
        with (folder / "err").open("wb") as err:
            self._popen = subprocess.Popen(
                [
                    *(limited if files else ()),
                    sys.executable,
                    "-m",
                    "holdfast",
                    "serve",
                    "shop:app",
                    "--port",
                    "0",
                    *args,
                ],
                cwd=folder,
                env=env | ours | settings,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )
        self.url = ""
        self.token: str | None = None

    def __enter__(self) -> "Serving":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.communicate()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def listening(self) -> str:
        """Return the first line of the service; the address and the token are known after it."""
        line = self._first_line()
        assert self.url, self.said()
        return line

    def is_listening(self) -> bool:
        """False: it has ended instead."""
        self._first_line()
        return self.url != ""

    def _first_line(self) -> str:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline().strip()
        if found := LISTENING.search(line):
            self.url = found[1]
            token = re.search(r"hf_[0-9a-f]{12}_[\w-]{43}", self.said())
            self.token = token[0] if token else self.token
        return line

    def said(self) -> str:
        return (self.folder / "err").read_text()

    def until_said(self, words: str) -> None:
        until(lambda: words in self.said(), words, seconds=BOUND_SECONDS)

    def line(self, token: str | None = "") -> Line:
        return Line(self.url, self.token if token == "" else token)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = "") -> Answer:
        line = self.line(token)
        try:
            return line.ask(method, path, body)
        finally:
            line.close()

    def apply(self, type: str, payload: Any, wait_seconds: float = 0.0, **more: Any) -> Answer:
        body = {"type": type, "payload": payload, "waitSeconds": wait_seconds, **more}
        return self.ask("POST", "/api/workflows/apply", body)

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._popen.send_signal(number)

    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def ended(self) -> int:
        self._popen.communicate(timeout=BOUND_SECONDS)
        return self._popen.returncode


def token_file(folder: Path, roles: Sequence[tk.Role] = (tk.Role.ADMIN,)) -> tuple[Path, list[str]]:
    path, made = folder / "tokens.json", [tk.make(f"of-{role}", role) for role in roles]
    tk.write(path, [token for token, _ in made])
    return path, [text for _, text in made]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
