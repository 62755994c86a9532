"""The distribution has a name of its own, and every message and page uses it."""

import re
import subprocess
import tomllib
from pathlib import Path

from holdfast import __version__
from holdfast.version import DISTRIBUTION

ROOT = Path(__file__).parents[2]
OLD_NAME = re.compile(r"(?<![\w/-])holdfast\[[a-z]|pip install ['\"]?holdfast(?![\w-])")


def project() -> dict[str, object]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def test_the_distribution_is_named_apart_from_the_import_and_the_command() -> None:
    assert project()["name"] == DISTRIBUTION == "holdfast-engine"
    assert project()["scripts"] == {"holdfast": "holdfast_command:main"}


def test_the_version_is_written_in_one_place() -> None:
    assert project()["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", __version__)


def test_no_file_tells_people_to_install_the_distribution_of_another_project() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wrong = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path == Path(__file__) or name.startswith("bench/results/") or not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        wrong += [f"{name}:{n}" for n, line in enumerate(lines, 1) if OLD_NAME.search(line)]
    assert wrong == []
