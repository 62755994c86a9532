"""The users' pages are written in short sentences, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.support.docs.prose import sentences, words
from tests.support.source_tree import ROOT, files_under, text_of

WORDS_MAX = 29
# Sentences that are still longer. The numbers only fall.
LONG_LEFT = {"docs/performance.md": 23, "docs/metrics.md": 1, "docs/api.md": 1}
DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in files_under(ROOT, ".md")
    if page.name == "README.md"
    or (page.is_relative_to(DOCS) and not page.is_relative_to(DOCS / "internals"))
)

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)```\w*\n.*?^\1``` *$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings, as GitHub makes them."""
    headings = HEADING.findall(FENCED.sub("", text_of(page)))
    return {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_sentence_has_fewer_than_thirty_words(page: Path) -> None:
    long = [one for one in sentences(text_of(page)) if words(one) > WORDS_MAX]
    said = "\n".join(f"{words(one)} words: {one}" for one in long)
    assert len(long) <= LONG_LEFT.get(name_of(page), 0), f"\n{said}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_and_heading_that_a_page_links_to_exists(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", text_of(page))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("One sentence. Another\nover two lines.", ["One sentence.", "Another over two lines."]),
        (
            "- an item\n- another\n\n| a | b |\n|---|---|\n",
            ["an item", "another", "a", "b"],
        ),
        ("| `a|b` waits. It ends. | \\| |", ["X waits.", "It ends.", "\\|"]),
        ("```sh\nno prose\n```\nSee [that page](x.md) and `some code`.", ["See that page and X."]),
        ("# Heading\n\n**Bold.** It is e.g. plain.", ["Bold.", "It is e.g. plain."]),
        ("**Index:** [`one`](a.md) ·\n[`two`](b.md).", ["Index:", "X", "X."]),
    ],
)
def test_the_sentences_of_a_page_are_those_that_a_reader_sees(
    page: str, expected: list[str]
) -> None:
    assert list(sentences(page)) == expected


def test_a_span_of_code_and_a_number_with_its_unit_are_counted_as_words() -> None:
    assert words("It waits `for a while`, 10 s at most.".replace("`for a while`", "X")) == 7
