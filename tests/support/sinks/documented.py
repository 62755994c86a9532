"""The code in docs/sinks.md, for the tests that run it."""

import re

from tests.support.source_tree import ROOT


def documented(words: str, *, language: str = "python") -> str:
    """The one block with these words in it."""
    page = (ROOT / "docs" / "sinks.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    (found,) = [block for block in blocks if words in block]
    return str(found)
