"""Each test that the requirements name can fail: it finds a defect put in on purpose."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_requirements import BY_ID, IDS, TEST
from tests.support.requirement_defects import DEFECTS, Defect
from tests.support.source_tree import ROOT, project_files

CONTRACT_RUN = "tests/stores/memory/test_contract.py"  # the defects of stores are in this store
CONTRACT_CLASSES = {
    "contract/triggers": "TestMemoryTriggers",
    "contract/plans": "TestMemoryPlans",
    "contract/records": "TestMemoryTriggers",
    "contract/": "TestMemory",
}
TEST_FAILED = 1  # pytest's exit code; 2 and more: it did not come to run the test


def test_each_requirement_has_a_defect() -> None:
    assert [defect.requirement for defect in DEFECTS] == IDS


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.requirement)
def test_the_defect_can_be_put_in_and_its_test_is_named_by_the_page(defect: Defect) -> None:
    assert (ROOT / defect.path).read_text(encoding="utf-8").count(defect.old) == 1
    assert defect.old != defect.new
    assert defect.test in TEST.findall(BY_ID[defect.requirement][3])


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.requirement)
def test_the_named_test_fails_with_the_defect_and_passes_without_it(
    defect: Defect, tmp_path: Path
) -> None:
    tree = copied(tmp_path / "tree")
    assert outcome(defect.test, tree) == 0
    path = tree / defect.path
    path.write_text(path.read_text(encoding="utf-8").replace(defect.old, defect.new))
    assert outcome(defect.test, tree) == TEST_FAILED


def copied(tree: Path) -> Path:
    for path in project_files():
        if path.is_file():
            target = tree / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return tree


def outcome(test: str, tree: Path) -> int:
    path, _, name = test.partition("::")
    runs = next((name for start, name in CONTRACT_CLASSES.items() if path.startswith(start)), None)
    selected = [f"{CONTRACT_RUN}::{runs}", "-k", name.rpartition("::")[2]] if runs else [test]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *selected],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert re.search(r"\d+ (passed|failed)", done.stdout), done.stdout + done.stderr
    return done.returncode
