"""The architecture page names files that exist, and can be read in five minutes."""

import re

import pytest

from tests.support.docs.prose import sentences, words
from tests.support.source_tree import PACKAGE, ROOT, text_of

PAGE = text_of(ROOT / "docs" / "architecture.md")
MAP = text_of(ROOT / "docs" / "internals" / "components.md")
PATHS = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|lua|sql|md|rs))?)`")
WORDS_MAX = 1_200  # five minutes, tables included


@pytest.mark.parametrize("path", sorted({*PATHS.findall(PAGE), *PATHS.findall(MAP)}))
def test_every_path_on_the_page_exists(path: str) -> None:
    assert (PACKAGE / path).exists() or (ROOT / path).exists()


def test_the_page_names_the_files_that_a_newcomer_asks_for() -> None:
    for path in (
        "runtime/worker/heartbeat.py",
        "notify/signature.py",
        "stores/redis/tasks/shared/write_checkpoint.lua",
        "stores/sqlite/tasks/store.py",
        "server/auth/access.py",
        "insight/why/task.py",
        "testing/contract/",
    ):
        assert path in PATHS.findall(PAGE)


def test_every_layer_is_in_the_picture() -> None:
    picture = PAGE.split("```")[1]
    for layer in ("domain", "ports", "stores", "runtime", "sinks", "observe", "engine", "encoding"):
        assert f"{layer}/" in picture
    for layer in ("insight", "notify", "server", "cli", "integrations", "testing"):
        assert f"{layer}/" in picture
    for module in ("registry.py", "settings.py", "clock.py"):
        assert module in picture


def test_the_page_takes_five_minutes() -> None:
    cells = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert sum(map(words, [*sentences(PAGE), *cells])) <= WORDS_MAX
