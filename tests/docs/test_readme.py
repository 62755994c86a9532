"""The README's example is a program: it runs. The README and docs/overview.md name what exists."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from holdfast.cli.root import cli
from holdfast.clock import SystemClock
from holdfast.engine.store_url import store_from_url
from holdfast.settings import load
from tests.support.programs import run_python

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
OVERVIEW = (ROOT / "docs" / "overview.md").read_text()
BOTH = README + OVERVIEW
LINES_MAX = 66  # of the README: one screen


def example() -> str:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_example_runs_and_prints_its_result(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(example())
    done = run_python(tmp_path, "example.py")
    assert done.returncode == 0, done.stderr
    assert "at 7, snapshot t-001-before-7, effect key" in done.stdout
    assert (tmp_path / "holdfast.db").exists()


def test_it_fits_on_one_screen_and_shows_what_the_example_prints() -> None:
    assert len(README.splitlines()) <= LINES_MAX
    assert len([line for line in example().splitlines() if line.strip()]) <= 20
    assert "```\nat 7, snapshot t-001-before-7, effect key " in README


def test_every_make_target_they_name_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"make ([a-z-]+)", BOTH)) - {"are"}
    assert {"demo", "test"} <= named
    assert named <= set(targets)


def test_every_page_and_picture_they_name_exists() -> None:
    for page, folder in ((README, ROOT), (OVERVIEW, ROOT / "docs")):
        for path in re.findall(r"\]\(([^)]+)\)", page):
            assert (folder / path).exists(), path


def test_every_extra_they_name_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"holdfast-engine\[([a-z]+)\]", BOTH))
    assert "redis" in named
    assert named <= set(project["optional-dependencies"])


def test_every_store_they_name_can_be_opened() -> None:
    urls = re.findall(r"\b(?:sqlite|memory|redis)://[^\s`|]*", BOTH)
    assert {url.partition("://")[0] for url in urls} == {"sqlite", "memory", "redis"}
    for url in urls:
        store_from_url(url, SystemClock(), "executor")


def test_every_command_they_name_exists() -> None:
    named = set(re.findall(r"\bholdfast ([a-z]+)", BOTH.replace(example(), "")))
    assert {"worker", "doctor"} <= named
    command = get_command(cli)
    assert isinstance(command, TyperGroup)
    assert named <= set(command.commands)


# A program that is killed where the name says, and is not killed when it is started again.
KILL_AT = """
import os, sys
import example
from holdfast.stores.sqlite.tasks.store import SqliteTasks

point, marker = sys.argv[1], "killed"


def kill() -> None:
    if not os.path.exists(marker):
        open(marker, "w").close()
        os._exit(9)


def killing(real, when, matches):
    async def call(store, batch, *more, **options):
        hit = matches(batch)
        if hit and when == "before":
            kill()
        answers = await real(store, batch, *more, **options)
        if hit and when == "after":
            kill()
        return answers

    return call


verb, when, stage = point.split("-")
real = getattr(SqliteTasks, verb)
if verb == "claim":
    async def claim(store, *args, **options):
        claimed = await real(store, *args, **options)
        if claimed:
            kill()
        return claimed

    SqliteTasks.claim = claim
else:
    def matches(batch):
        return verb == "insert" or any(t.stage and t.stage.name == stage for t in batch)

    setattr(SqliteTasks, verb, killing(real, when, matches))
example.asyncio.run(example.main())
"""
POINTS = (
    *("insert-before-x", "insert-after-x", "claim-after-x"),
    *("apply-before-snapshot", "apply-after-snapshot"),
    *("apply-before-migrate", "apply-after-migrate"),
)


@pytest.mark.parametrize("point", POINTS)
def test_the_example_killed_at_any_point_and_started_again_prints_its_result(
    tmp_path: Path, point: str
) -> None:
    (tmp_path / "example.py").write_text(example())
    (tmp_path / "kill.py").write_text(KILL_AT)
    killed = run_python(tmp_path, "kill.py", point, HOLDFAST_LEASE="1s")
    assert killed.returncode == 9, killed.stderr
    again = run_python(tmp_path, "kill.py", point, HOLDFAST_LEASE="1s")
    assert again.returncode == 0, again.stderr
    assert "at 7, snapshot t-001-before-7, effect key" in again.stdout
    if point == "insert-after-x":
        return  # the worker of the same process may have claimed it before the kill, or not
    held = point not in ("insert-before-x", "apply-after-migrate")
    assert ("then another worker takes the task over" in again.stderr) is held, again.stderr


def test_the_example_waits_longer_than_a_take_over_takes() -> None:
    found = re.search(r"result\(timeout=(\d+)\)", example())
    assert found is not None
    assert int(found.group(1)) > 2 * load().lease + 2
