"""The README's example is a program: it runs."""

import re
import tomllib
from pathlib import Path

from typer.core import TyperGroup
from typer.main import get_command

from holdfast.app.opening import store_from_url
from holdfast.cli.root import cli
from holdfast.clock import SystemClock
from tests.programs import run_python

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


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


def test_every_make_target_it_names_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"make ([a-z-]+)", README)) - {"are"}
    assert {"demo", "test"} <= named
    assert named <= set(targets)


def test_every_page_and_picture_it_names_exists() -> None:
    for path in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / path).exists(), path


def test_every_extra_it_names_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"holdfast-engine\[([a-z]+)\]", README))
    assert "redis" in named
    assert named <= set(project["optional-dependencies"])


def test_every_store_it_names_can_be_opened() -> None:
    urls = re.findall(r"\b(?:sqlite|memory|redis)://[^\s`|]*", README)
    assert {url.partition("://")[0] for url in urls} == {"sqlite", "memory", "redis"}
    for url in urls:
        store_from_url(url, SystemClock(), "executor")


def test_every_command_it_names_exists() -> None:
    named = set(re.findall(r"\bholdfast ([a-z]+)", README.replace(example(), "")))
    assert {"worker", "doctor"} <= named
    command = get_command(cli)
    assert isinstance(command, TyperGroup)
    assert named <= set(command.commands)
