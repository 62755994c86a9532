"""The demo ends with a running service that you can try."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.cli.demo.workers import wait_or_kill
from holdfast.cli.extras import missing_server_package

APP = "holdfast.cli.demo.service:app"
SERVE = (sys.executable, "-m", "holdfast", "serve", APP, "--port", "0", "--tethered")
CREW = ("--no-workers", "--processes", "2")
LISTENING = "listening on "
HELLO = {"type": "tour.hello", "payload": "world", "waitSeconds": 90}
ASK_SECONDS = 120.0

WALK = """\
call() { curl -sS -H "Authorization: Bearer $TOKEN" \\
  -H "Content-Type: application/json" "$@"; echo; }

call $URL/api/workflows/apply \\
  -d '{"type": "tour.slow", "tenant": "t-1", "payload": 7, "waitSeconds": 1}'
ID=…                                 # the taskId in the answer
call $URL/api/workflows/tasks/$ID    # processing: the task takes twelve seconds
call $URL/internal/workers           # one worker has "running": 1
PID=…                                # the pid of that worker
kill -9 $PID
call $URL/api/workflows/tasks/$ID    # repeat until another worker has done it

call $URL/api/workflows/apply -d '{"type": "tour.broken", "payload": "ann"}'
call $URL/internal/tasks/suspended   # it waits for a person: look at it …
BAD=…                                # its taskId
call $URL/internal/tasks/suspended/$BAD
call $URL/internal/tasks/suspended/$BAD/resume -d '{"reason": "has one now"}'
call $URL/api/workflows/tasks/$BAD   # … resumed, it has completed, too
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Offered:
    url: str
    token: str

    def apply(self, body: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
        """Submit a task and wait for it, like `call` in the printed commands."""
        parts = urlsplit(self.url)
        server = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ASK_SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            server.request("POST", "/api/workflows/apply", json.dumps(body), headers)
            answer = server.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            server.close()


def offer(place: Path, environment: Mapping[str, str], say: Say) -> None:
    """Serve until Enter is pressed; without a terminal, one submission shows that the service
    works.
    """
    if missing_server_package():
        say("To try the service, too: pip install 'holdfast-engine[server]'")
        return
    person = sys.stdin.isatty()
    # A person who kills a worker should not wait long. Without one, a slow machine loses no lease.
    lease = {} if person else {"HOLDFAST_LEASE": "60s"}
    with serving(place, {**environment, **lease}) as service:
        say("")
        say("Now it is your turn. A service with two worker processes runs at")
        say(f"  {service.url}")
        say("Try these commands in another terminal:")
        say("")
        say(f"URL={service.url}")
        say(f"TOKEN={service.token}")
        say(WALK)
        if person:
            _until_enter(say)
        else:
            say("There is no terminal, so the demo submits one task itself and ends:")
            status, answer = service.apply(HELLO)
            say(f"  POST /api/workflows/apply: {status}, {json.dumps(answer.get('result'))}")
    say("The service has ended.")


def _until_enter(say: Say) -> None:
    say("Press Enter to end the service.")
    try:
        input()
    except (EOFError, KeyboardInterrupt):
        say("")


@contextmanager
def serving(place: Path, environment: Mapping[str, str]) -> Iterator[Offered]:
    token = _token_in(place / "tokens.json")
    settings = {
        "HOLDFAST_STORE": f"sqlite:///{place}/service.db",
        "HOLDFAST_TOKENS": str(place / "tokens.json"),
    }
    with (place / "service.log").open("wb") as log:
        process = subprocess.Popen(
            [*SERVE, *CREW],
            env={**environment, **settings},
            stdin=subprocess.PIPE,  # it ends with us, however we end
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    try:
        yield Offered(_address(process, place / "service.log"), token)
    finally:
        process.send_signal(signal.SIGTERM)
        wait_or_kill(process)


def _token_in(path: Path) -> str:
    from holdfast.server.auth import tokens

    made, text = tokens.make("demo", tokens.Role.ADMIN, now=time.time())
    tokens.write(path, [made])
    return text


def _address(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(LISTENING):
            return line.removeprefix(LISTENING).strip()
    raise RuntimeError(f"the service did not start, see {log}")
