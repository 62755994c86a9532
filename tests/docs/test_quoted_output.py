"""The output that pages quote is what the commands print, up to the numbers in it."""

import re
from pathlib import Path

from holdfast import Holdfast
from tests.support.programs import run_python

ROOT = Path(__file__).parents[2]
BULK = (ROOT / "docs" / "bulk.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d+")


async def test_the_page_of_bulk_actions_quotes_the_preview(tmp_path: Path) -> None:
    found = re.search(r"^\$ holdfast (bulk preview .+)\n(.+)$", BULK, re.MULTILINE)
    assert found is not None
    async with Holdfast(f"sqlite:///{tmp_path}/store.db"):
        pass
    done = run_python(
        tmp_path, "-m", "holdfast", *found[1].split(), HOLDFAST_STORE="sqlite:///store.db"
    )
    assert done.returncode == 0, done.stderr
    assert NUMBER.sub("N", done.stdout.splitlines()[0]) == NUMBER.sub("N", found[2])
