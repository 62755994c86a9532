"""The distribution has a name of its own, and every message and page uses it."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.version import DISTRIBUTION

ROOT = Path(__file__).parents[2]
OLD_NAME = re.compile(r"(?<![\w/-])holdfast\[[a-z]|pip install ['\"]?holdfast(?![\w-])")

ALONE = """
import asyncio
import sys
from pathlib import Path

sys.modules["verify"] = sys.modules["tests"] = None  # whoever imports these fails

import holdfast
import holdfast.testing.contract
from holdfast.testing.engine import Engine

app = holdfast.Holdfast()

@app.task("greet")
async def greet(ctx: holdfast.Context, name: str) -> str:
    return f"hello {name}"

async def main() -> None:
    print(Path(holdfast.__file__).parents[1])
    async with app.running():
        print(await (await greet.submit("ann")).result(timeout=60))
    engine = Engine(app)
    print(await (await greet.submit("ann")).result())
    engine.close()

asyncio.run(main())
"""


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a wheel and an sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    hatch = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist"]
    subprocess.run([*hatch, "-d", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


def files_of_wheel(folder: Path) -> set[str]:
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        return set(packed.namelist())


def files_of_sdist(folder: Path) -> set[str]:
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        return {name.partition("/")[2] for name in packed.getnames()}


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def test_the_wheel_has_the_package_and_nothing_of_the_laboratory(built: Path) -> None:
    tops = {name.split("/")[0] for name in files_of_wheel(built)}
    assert tops == {"holdfast", "holdfast_command.py", f"holdfast_engine-{__version__}.dist-info"}


def test_the_wheel_has_every_file_of_the_package(built: Path) -> None:
    """Lua and SQL stand beside the Python that sends them, and must come along."""
    sources = {name.removeprefix("src/") for name in tracked("src") - {"src/README.md"}}
    assert any(name.endswith(".lua") for name in sources)
    assert any(name.endswith(".sql") for name in sources)
    assert sources <= files_of_wheel(built)


def test_the_sdist_has_what_its_tests_need(built: Path) -> None:
    needed = tracked("src", "tests", "verify", "bench", "pyproject.toml", "README.md", "LICENSE")
    assert needed <= files_of_sdist(built)


def test_what_was_installed_from_the_wheel_runs_alone(built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:  # a wheel of pure Python is installed by unpacking it
        packed.extractall(site)
    script = tmp_path / "script.py"
    script.write_text(ALONE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site), "HOLDFAST_STORE": "sqlite:///alone.db"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{site}\nhello ann\nhello ann\n"), done.stderr
