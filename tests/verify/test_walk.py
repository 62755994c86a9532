"""The roads of a submit, a stage, a resume and a request touch no more files than before."""

import subprocess
import sys

import pytest

from tests.support.source_tree import ROOT


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_no_road_touches_more_files_than_it_did(store: str) -> None:
    walk = [sys.executable, "-m", "verify.walk", "--store", store, "--check"]
    ended = subprocess.run(walk, check=False, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(ended.stdout.splitlines()) == 4, ended.stdout
