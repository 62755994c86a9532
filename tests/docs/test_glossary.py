"""The glossary is short enough to read, and its words are those of the pages and of the code."""

import re

from tests.docs.test_plain_pages import PAGES, name_of
from tests.support.source_tree import PACKAGE, ROOT, Breach, assert_none, files_under, text_of

PAGE = ROOT / "docs" / "glossary.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text_of(PAGE).splitlines()
    if line.startswith("| ") and not line.startswith("| word ")
]
ROWS_MAX = 66
CODE = re.compile(r"`([\w.]+)`")
SPAN = re.compile(r"`[^`]+`")

# Words to avoid that also have a good meaning: they may stand on a page.
ORDINARY = set(
    "step try go claim row file head hand place ended broken stuck order keep "
    "look says tell told".split()
)
OF_ANOTHER_TOOL = {"docs/metrics.md", "deploy/prometheus/README.md"}  # a job of Prometheus
FROM_ELSEWHERE = "docs/moving/"  # pages that quote the words of other engines


def words_to_avoid() -> set[str]:
    cells = (re.sub(r"\(.*?\)", "", row[2]).split(",") for row in ROWS)
    return {word.strip() for cell in cells for word in cell if word.strip()} - ORDINARY


def test_the_glossary_has_about_sixty_rows_and_each_word_once() -> None:
    assert len(ROWS) <= ROWS_MAX
    assert all(len(row) == 3 for row in ROWS)
    words = [word.strip() for row in ROWS for word in row[0].split(",")]
    assert len(words) == len(set(words))


def test_what_stands_in_code_on_the_page_stands_in_the_code() -> None:
    source = "\n".join(text_of(path) for path in files_under(PACKAGE))
    named = {name.split(".")[-1] for row in ROWS for cell in row[:2] for name in CODE.findall(cell)}
    assert named
    for name in named - {"send"}:  # of an example
        assert re.search(rf"\b{name}\b", source), name


def test_no_page_uses_a_word_that_another_has_replaced() -> None:
    assert {"job", "telling", "lever"} <= words_to_avoid()
    avoided = re.compile(rf"\b(?:{'|'.join(sorted(words_to_avoid()))})\b", re.IGNORECASE)
    assert_none(
        Breach(page, number, f"{found[0]}: the glossary has another word for it")
        for page in PAGES
        if page != PAGE and name_of(page) not in OF_ANOTHER_TOOL
        if not name_of(page).startswith(FROM_ELSEWHERE)
        for number, line in enumerate(text_of(page).splitlines(), start=1)
        for found in [avoided.search(SPAN.sub("", line))]
        if found
    )
