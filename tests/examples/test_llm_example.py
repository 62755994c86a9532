"""The example of an LLM pipeline, run as its README says, against an endpoint that fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.scenario_world import KEY, QUESTION, StartWorld

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "llm"
README = (EXAMPLE / "README.md").read_text()
USER_LINES_MAX = 150
NOTES = {"lease", "checkpoint", "suspended"}


def command() -> list[str]:
    """That of the README."""
    [line] = re.findall(r"^python (\S+)$", README, re.MULTILINE)
    return [sys.executable, line]


def test_it_runs_offline_and_each_question_is_answered_once() -> None:
    outside = {name: value for name, value in os.environ.items() if name != "MONGODB_URL"}
    done = subprocess.run(
        command(),
        cwd=EXAMPLE,
        env={**outside, "ANSWER_BACKOFF": "0.2s", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.endswith("each question is answered once\n")
    assert said.count("call failed: the endpoint: 503") == 2
    assert "check failed: the answer cites no source" in said
    assert "the endpoint was called 6 times" in said
    assert "in the database: 3 documents" in said
    stored = re.findall(r"^  (\S+)/1/store  \['(\w+)'\]", said, re.MULTILINE)
    assert len({task_id for task_id, _ in stored}) == 3
    assert {source for _, source in stored} == NOTES
    assert "sk-" not in said


def test_what_passes_is_tried_again_and_what_does_not_waits_for_a_person(
    start_world: StartWorld,
) -> None:
    world = start_world()
    service = world.serve()
    world.work()
    for number, way in enumerate(("429", "malformed", "empty", "uncited"), start=1):
        world.model.fails(fail=way, times=1, retryAfter=0)
        answer = service.apply(key=way)
        assert (way, answer.status) == (way, 200)
        assert len(world.documents()) == number
    world.model.fails(fail="uncited")
    assert service.apply(key="never-good").json["status"] == "suspended"

    calls = world.model.calls
    world.model.fails(fail="401")
    refused = service.apply(key="refused").json
    assert (refused["status"], refused["error"]["message"]) == ("suspended", "the endpoint: 401")
    assert world.model.calls == calls + 1
    unfit = service.apply(key="unfit", text="?").json
    assert unfit["error"]["message"] == "no note has a word of the question"
    assert len(world.documents()) == 4
    assert KEY not in world.logs()
    assert QUESTION in (kept := world.kept())
    assert KEY not in kept


def test_a_key_may_be_left_out_or_end_with_a_new_line(start_world: StartWorld) -> None:
    """As a local model needs none, and as files of secrets have it."""
    world = start_world()
    service = world.serve()
    for number, key in enumerate(("", f"{KEY}\n"), start=1):
        worker = world.work(OPENAI_API_KEY=key)
        assert service.apply().json["status"] == "completed"
        assert len(world.documents()) == number
        worker.close()
    assert KEY not in world.kept()


def test_a_wait_that_the_endpoint_asks_for_is_kept(start_world: StartWorld) -> None:
    world = start_world()
    service = world.serve()
    world.work()
    world.model.fails(fail="429", retryAfter=600)
    task_id = service.apply(wait_seconds=0).json["taskId"]
    task = service.until_status(task_id, "retry")
    assert task["error"]["error"] == "holdfast.RetryAfter"
    at = service.get(f"/api/tasks/{task_id}")["events"][-1]
    assert (at["event"], at["delaySeconds"]) == ("TaskRetryScheduled", 600)


def test_an_endpoint_that_hangs_is_left_and_called_again(
    start_world: StartWorld,
) -> None:
    world = start_world()
    service = world.serve()
    done, calls = dict[str, str](), list[tuple[str, str]]()
    for seconds in ("0.5", "5", "20"):  # one that is merely slow must not be left, too
        worker = world.work(ANSWER_CALL_SECONDS=seconds)
        world.model.fails(fail="hang", times=1)
        done = service.apply().json
        worker.close()
        calls = [call for call in service.calls(done["taskId"]) if call[0] == "call"]
        assert calls[0] == ("call", "failed")
        if len(calls) == 2:
            break
    assert done["status"] == "completed"
    assert calls == [("call", "failed"), ("call", "done")]


def test_the_endpoint_answers_alike_for_the_same_prompt(start_world: StartWorld) -> None:
    world = start_world()
    messages = [
        {"role": "system", "content": "Notes:\n\n[a]\nOne word. A worker dies."},
        {"role": "user", "content": QUESTION},
    ]
    order = {"model": "small", "messages": messages}
    url = f"{world.model.base_url}/chat/completions"
    first, second = (
        httpx.post(url, json=order, timeout=60, trust_env=False).json() for _ in range(2)
    )
    assert first == second
    assert first["choices"][0]["message"]["content"] == "A worker dies. [a]"


@pytest.mark.parametrize("name", ["llm", "rollout"])
def test_the_users_code_is_short(name: str) -> None:
    code = ROOT / "examples" / name / "app.py"
    assert len(code.read_text().splitlines()) < USER_LINES_MAX
