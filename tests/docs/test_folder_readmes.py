"""Each top folder says on a few lines what lives in it, what does not, and where to start."""

from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGE, ROOT, project_files, text_of

LINES_MAX = 10


def folders_in(place: Path) -> set[Path]:
    """Return the folders directly in ``place`` that hold files of the project."""
    inside = (path.relative_to(place) for path in project_files() if path.is_relative_to(place))
    return {place / path.parts[0] for path in inside if len(path.parts) > 1}


TOP_FOLDERS = [
    folder for folder in folders_in(ROOT) | folders_in(PACKAGE) if not folder.name.startswith(".")
]


@pytest.mark.parametrize("folder", sorted(TOP_FOLDERS), ids=lambda path: path.name)
def test_a_top_folder_has_a_short_readme_that_says_where_to_start(folder: Path) -> None:
    title, blank, start, *rest = text_of(folder / "README.md").splitlines()
    assert len(rest) <= LINES_MAX - 3
    assert title.startswith(f"# {folder.name}: ")
    assert not blank
    assert start.startswith("Start: ")


def test_the_folders_are_found_where_they_are() -> None:
    names = {str(folder.relative_to(ROOT)) for folder in TOP_FOLDERS}
    assert {"src", "requirements", "tests", "src/holdfast/domain", "src/holdfast/cli"} <= names
