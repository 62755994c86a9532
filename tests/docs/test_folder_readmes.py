"""Each top folder says on a few lines what lives in it, what does not, and where to start."""

from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGE, ROOT, text_of

LINES_MAX = 10
ROOMS = [path.parent for path in PACKAGE.glob("*/__init__.py")]  # what git left behind is no room
BESIDE = [ROOT / name for name in ("bench", "deploy", "docs", "examples", "tests", "verify")]


@pytest.mark.parametrize("folder", sorted([*ROOMS, *BESIDE]), ids=lambda path: path.name)
def test_a_top_folder_has_a_short_readme(folder: Path) -> None:
    assert 0 < len(text_of(folder / "README.md").splitlines()) <= LINES_MAX
