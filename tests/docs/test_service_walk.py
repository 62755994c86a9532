"""The walk through the service in docs/service.md, line by line."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.demo.tour import WALK
from tests.support.stand_ins import path_with_curl
from verify.servers.poll import until

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
BOUND_SECONDS = 60.0
TRIES = 5
OVER = "completed"


def walk() -> str:
    found = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def lines() -> Iterator[str]:
    """Each as one, without what is said about it."""
    for line in walk().replace("\\\n", " ").splitlines():
        if told := re.sub(r"\s+#.*", "", line).strip():
            yield told


def serve_line() -> str:
    [line] = [line for line in PAGE.splitlines() if "serve holdfast.cli.demo.service" in line]
    return line


class Walker:
    """A person who types the lines of the page at the service that its own line starts."""

    def __init__(self, folder: Path) -> None:
        setting, _, *args = shlex.split(serve_line())
        given = dict([setting.split("=")])
        ours = {"HOLDFAST_STORE": f"sqlite:///{folder}/walk.db", "DEMO_SPEED": "2"}
        self._log = folder / "log"
        self._path = path_with_curl(folder)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *args, "--port", "0"],
                cwd=folder,
                env={**os.environ, **given, **ours},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        token = re.search(r"hf_\S+", self._log.read_text())
        assert line, self._log.read_text()
        assert token is not None
        self.known = {"URL": line.split()[-1], "TOKEN": token[0]}
        self._functions: list[str] = []

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=BOUND_SECONDS)

    def do(self, line: str) -> Any:
        if line.startswith("call()"):
            self._functions.append(line)
            return None
        if not line.startswith("call "):
            subprocess.run(["/bin/sh", "-c", line], env=self._env, check=True)
            return None
        return json.loads(self._by_curl(line))

    @property
    def _env(self) -> dict[str, str]:
        return {**os.environ, **self.known, "PATH": self._path}

    def _by_curl(self, line: str) -> str:
        script = "\n".join([*self._functions, line])
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=True,
        )
        return done.stdout

    def until(self, line: str, is_so: str) -> Any:
        """The same line again, as the page says; to the end if that comes first."""

        def looked() -> Any:
            answer = self.do(line)
            return answer if answer["status"] in (is_so, OVER) else None

        return until(looked, f"{line}: {is_so}", seconds=BOUND_SECONDS)


@pytest.fixture
def walker(tmp_path: Path) -> Iterator[Walker]:
    walker = Walker(tmp_path)
    yield walker
    walker.close()


def the_one_at_work(walker: Walker, line: str, status: str) -> str | None:
    """Return the process that runs the task, or None if the task is over."""

    def looked() -> list[str | None]:
        workers = walker.do(line)["workers"]
        if at_work := [str(one["pid"]) for one in workers if one["running"]]:
            return [*at_work]
        return [None] if walker.do(status)["status"] == OVER else []

    return until(looked, "one of them runs it", seconds=BOUND_SECONDS)[0]


def outcomes(walker: Walker) -> list[str]:
    calls = walker.do("call $URL/api/tasks/$ID/timeline")["runs"][0]["calls"]
    return [call["outcome"] for call in calls]


def killed_at_work(walker: Walker, lines: list[str]) -> Any:
    """Return the outcome of the task whose worker was killed, or None if it was over before."""
    submit, status, workers, kill, again = lines
    walker.known["ID"] = walker.do(submit)["taskId"]
    walker.until(status, "processing")
    pid = the_one_at_work(walker, workers, status)
    if pid is None:
        return None
    walker.known["PID"] = pid
    walker.do(kill)
    done = walker.until(again, OVER)
    return done if "lost" in outcomes(walker) else None


def test_the_walk_on_the_page_goes_as_it_says(walker: Walker) -> None:
    told = lines()
    walker.do(next(told))
    first = [next(told) for _ in range(7)]
    assert (first.pop(1), first.pop(3)) == ("ID=…", "PID=…")
    tries = (killed_at_work(walker, first) for _ in range(TRIES))
    done = next((one for one in tries if one is not None), None)
    assert done is not None, f"{TRIES} times it was over before it could be killed"
    assert done["result"] == "t-1 is at 7, 7000 rows"

    assert walker.do(next(told))["status"] == "suspended"
    [waiting] = walker.do(next(told))["tasks"]
    walker.known["BAD"] = waiting["taskId"]
    assert next(told) == "BAD=…"
    assert walker.do(next(told))["error"]["message"] == "ann has no mailbox"
    walker.do(next(told))
    assert walker.until(next(told), "completed")["result"] == "hello at last, ann"
    assert list(told) == []


def test_the_same_walk_is_offered_at_the_end_of_the_demo() -> None:
    assert walk() == WALK
    assert all(len(line) <= 80 for line in WALK.splitlines())
