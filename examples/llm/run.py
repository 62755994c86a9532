"""The whole of it on one machine, without a network: ask well, ask while the model fails, look.

    python run.py

Starts the endpoint, a server that speaks as MongoDB does (unless MONGODB_URL names one) and
`holdfast serve`, posts three questions to it, and prints what is in the database then.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pymongo

from verify.servers.mongo import MongoServer

HERE = Path(__file__).parent
KEY = "sk-local-0123456789abcdef"  # any real one comes from the environment in the same way
WAIT_SECONDS = 60


@contextmanager
def listening(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[str]:
    """The address that the process prints when it listens."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=HERE,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise SystemExit(log.read_text())
        yield said.split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_SECONDS)


class Show:
    """Asks as a user of the service does, and makes the endpoint fail."""

    def __init__(self, service: str, token: str, endpoint: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self.service = httpx.Client(base_url=service, headers=headers, timeout=2 * WAIT_SECONDS)
        self.endpoint = httpx.Client(base_url=endpoint, timeout=WAIT_SECONDS)
        self.tasks: set[str] = set()

    def ask(self, text: str, key: str) -> bool:
        work = {"type": "docs.answer", "payload": {"text": text}, "key": key}
        answered = self.service.post(
            "/api/workflows/apply", json={**work, "waitSeconds": WAIT_SECONDS}
        )
        told: dict[str, Any] = answered.json()
        print(f"\n{text}\n{answered.status_code} {told['status']}")
        print(told["result"]["text"] if told.get("result") else told.get("error"))
        self.tasks.add(told["taskId"])
        self.trouble(told["taskId"])
        return answered.status_code == 200

    def trouble(self, task_id: str) -> None:
        """What went wrong on the way."""
        [run] = self.service.get(f"/api/tasks/{task_id}/timeline").json()["runs"]
        for call in run["calls"]:
            if call["error"]:
                print(f"  {call['stage']} failed: {call['error']['message']}")

    def fail(self, **orders: Any) -> None:
        self.endpoint.post("/control", json=orders).raise_for_status()

    def go(self) -> bool:
        well = self.ask("What happens when a worker dies?", "q-1")
        self.fail(fail="503", times=2)
        late = self.ask("Is a committed stage ever called again?", "q-2")
        self.fail(fail="uncited", times=1)
        unfit = self.ask("Who resumes a suspended task?", "q-3")
        again = self.ask("Who resumes a suspended task?", "q-3")  # the same key: the same task
        print(f"\nthe endpoint was called {self.endpoint.get('/control').json()['calls']} times")
        return well and late and unfit and again


def look(url: str, tasks: set[str]) -> bool:
    """One document for each task, and no more."""
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(url)
    with client:
        documents = list(client.get_default_database("answers")["history"].find())
    ours = [one for one in documents if one["_id"].partition("/")[0] in tasks]
    print(f"in the database: {len(ours)} documents")
    for one in ours:
        print(f"  {one['_id']}  {one['sources']}  {one['answer'][:40]}…")
    return len(ours) == len(tasks) == 3


def main() -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-llm-")))
        url = os.environ.get("MONGODB_URL")
        url = url or f"{stack.enter_context(MongoServer()).url}/answers"
        environment = {**os.environ, "MONGODB_URL": url, "NO_PROXY": "127.0.0.1"}
        command = ["endpoint.py", "--port", "0"]
        endpoint = stack.enter_context(listening(command, environment, folder / "endpoint.log"))
        environment |= {"OPENAI_BASE_URL": f"{endpoint}/v1", "OPENAI_API_KEY": KEY}
        environment.setdefault("HOLDFAST_STORE", f"sqlite:///{folder / 'tasks.db'}")
        environment.setdefault("ANSWER_BACKOFF", "1s")
        environment.setdefault("HOLDFAST_STOP_DELAY", "0")
        command = ["-m", "holdfast", "serve", "app:app", "--port", "0"]
        service = stack.enter_context(listening(command, environment, folder / "service.log"))
        [token] = re.findall(r"hf_\S+", (folder / "service.log").read_text())
        show = Show(service, token, endpoint)
        good = show.go() and look(url, show.tasks)
    print("\neach question is answered once" if good else "\nSOMETHING IS WRONG")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
