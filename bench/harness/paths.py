"""Paths of the benchmark."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench" / "peers"
OURS = ROOT / "bench" / "ours"
RESULTS = ROOT / "bench" / "results"
ENVIRONMENTS = ROOT / ".venv-bench"
DOCS = ROOT / "docs"
PYTHON = Path(sys.executable)


def peer_names() -> list[str]:
    return sorted(path.parent.name for path in PEERS.glob("*/adapter.py"))
