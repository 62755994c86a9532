"""Schemathesis over the OpenAPI document: every check, every phase, with a token and without one.

It runs in a process of its own, against a service that listens on loopback with a worker. What is
configured beside the defaults, and why, stands in schemathesis.toml.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import httpx
import pytest

from holdfast.server.auth import access
from holdfast.server.http import sse
from holdfast.server.routes.telegram import SECRET
from tests.server.conftest import declared
from tests.support.server.listener import Listening, listening

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
HOOKS = "tests.support.server.schemathesis_hooks"
PHASES = "examples,coverage,fuzzing,stateful"
BOT = {
    "telegram_token": f"1:{'x' * 30}",
    "telegram_secret": "secret-of-this-test",
    "telegram_task": "tenant.upgrade",
    "telegram_api": "http://127.0.0.1:9",  # nobody takes the answers
    "webhook_allow": "127.0.0.1:9",
}


@pytest.fixture
def listens(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    # Both limits would answer 429 where another answer is expected; test_limits.py has them.
    monkeypatch.setattr(access, "WRONG_TOKENS_RATE", 1e9)
    # Nobody acts on a task that was paused, so a stream of its events would not end by itself.
    monkeypatch.setattr(sse, "STREAM_SECONDS", 0.05)
    monkeypatch.setattr(sse, "BEAT_SECONDS", 0.05)
    with listening(declared(rate_limit=1e9, **BOT)) as served:
        fill(served)
        yield served


def fill(served: Listening) -> None:
    """What the examples of the document name is there."""
    order = {"type": "tenant.upgrade", "payload": {"version": 7}}
    with httpx.Client(base_url=served.url, headers=served.bearer(), timeout=60) as client:
        for path, body in (
            ("/api/plans", order | {"planId": "upgrade-7", "tenants": ["t-001", "t-002"]}),
            ("/api/triggers", order | {"triggerId": "nightly", "cron": "0 3 * * *"}),
            ("/api/workflows/apply", {"type": "mail.lost", "payload": "x", "tenant": "t-001"}),
        ):
            assert client.post(path, json=body).is_success


def run(served: Listening, *args: str, token: str | None = "admin", seconds: float = 1500) -> str:
    auth = [] if token is None else ["-H", f"Authorization: Bearer {served.tokens[token]}"]
    if token is not None:
        auth += ["-H", f"{SECRET.header}: {BOT['telegram_secret']}"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli"),
            *("--config-file", str(HERE / "schemathesis.toml")),
            *("run", f"{served.url}/openapi.json", "--checks", "all", *auth, *args),
        ],
        cwd=gettempdir(),  # it leaves a folder behind
        env=os.environ | {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": HOOKS},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    return done.stdout


def all_tested(said: str) -> int:
    """How many operations; less than all would mean that some were passed by."""
    found = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", said)
    assert found is not None, said
    assert found[1] == found[2] == found[3], said
    return int(found[1])


def operations(served: Listening) -> int:
    """But for that of the document itself."""
    paths = httpx.get(f"{served.url}/openapi.json", timeout=60).json()["paths"]
    return sum(len(methods) for path, methods in paths.items() if path != "/openapi.json")


@pytest.mark.parametrize(
    ("token", "phases"),
    [("admin", PHASES), pytest.param(None, "examples,coverage", marks=pytest.mark.slow)],
)
def test_every_answer_is_as_the_document_says(
    listens: Listening, token: str | None, phases: str
) -> None:
    said = run(listens, "--phases", phases, "-n", "2", "--seed", "1", token=token)
    assert all_tested(said) == operations(listens)
    for phase in phases.split(","):
        assert re.search(rf"[✅⏭]️?\s+{phase.title()}", said), said


@pytest.mark.slow
@pytest.mark.parametrize("token", ["admin", "of-t-1", None])
def test_every_answer_is_as_the_document_says_for_long(
    listens: Listening, token: str | None
) -> None:
    run(listens, "--phases", PHASES, "-n", "300", token=token, seconds=3000)


def test_an_answer_that_is_not_in_the_document_is_found(
    listens: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the run would see it: a bare 500 of one route."""
    monkeypatch.setattr(type(listens.service.monitor), "alerts", property(lambda _: 1 / 0))
    with pytest.raises(AssertionError, match="Undocumented status code"):
        run(listens, "--include-path", "/internal/alerts", "-n", "2")
