"""An environment for each peer, from its pinned, hashed requirements; remade when they change."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.harness.paths import ENVIRONMENTS, PEERS, ROOT
from bench.harness.processes import environment, without_places

INSTALL_SECONDS = 600.0


class CannotInstall(RuntimeError):
    """A peer cannot be installed; the message says why."""


def python_for(name: str) -> Path:
    """Return the interpreter of the peer's environment, which is made if it is missing or old."""
    folder, wanted = ENVIRONMENTS / name, PEERS / name / "requirements.txt"
    if not wanted.is_file():
        raise CannotInstall(f"there is no {wanted.relative_to(ROOT)}")
    stamp, digest = folder / ".ready", _digest(wanted)
    if not (stamp.is_file() and stamp.read_text() == digest):
        _make(folder, wanted)
        stamp.write_text(digest)
    return folder / "bin" / "python"


def _digest(requirements: Path) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}\n".encode()
    return hashlib.sha256(version + requirements.read_bytes()).hexdigest()


def _make(folder: Path, requirements: Path) -> None:
    """Filled by our own pip: a Python packaged without ensurepip can make an empty one as well."""
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "--no-input"]
    pip += ["--python", python, "install", "--require-hashes"]
    _run([*pip, "-r", str(requirements)])


def _run(command: list[str]) -> None:
    """Run pip with the settings of this machine, which say where the packages are."""
    kept = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    try:
        subprocess.run(
            command,
            cwd=ROOT,
            env=kept | _pip_settings(),
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"not installed within {INSTALL_SECONDS:g} s") from error
    except (subprocess.CalledProcessError, OSError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise CannotInstall(without_places((said or ["no reason given"])[-1][-300:])) from error


def _pip_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
