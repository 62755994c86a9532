"""The folder for files of tests."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.support import scratch


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setenv("TMPDIR", "")  # put back when the test ends
    monkeypatch.delenv("TMPDIR")


@pytest.mark.usefixtures("chosen")
def test_they_are_in_memory_where_that_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "MEMORY", tmp_path)
    monkeypatch.setattr(scratch, "ROOM_BYTES", 1)
    scratch.keep_in_memory()
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize(("place", "room_bytes"), [("here", 1 << 62), ("nowhere", 1)])
def test_without_room_they_are_where_they_always_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, room_bytes: int
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(scratch, "MEMORY", tmp_path / place)
    monkeypatch.setattr(scratch, "ROOM_BYTES", room_bytes)
    scratch.keep_in_memory()
    assert "TMPDIR" not in os.environ


def test_who_names_a_place_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch.keep_in_memory()
    assert os.environ["TMPDIR"] == str(tmp_path)
