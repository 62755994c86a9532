"""The sentences of a Markdown page, those in cells of tables too, without code and headings."""

import re
from collections.abc import Iterator

FENCED = re.compile(r"^( *)(```+)\w*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
SPAN = re.compile(r"`[^`]+`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
MARKER = re.compile(r"^ *(?:[-*]|\d+\.) +")
LEFT_OUT = re.compile(r"^ *(?:\||#)")
ROW = re.compile(r"^ *\|(.*)\| *$")
CELL_END = re.compile(r"(?<!\\)\|")
ENDS = re.compile(r" · |(?<=[.!?])[*_)\"”]*\s+(?=[^a-z])|(?<=[.!?:])\*\*\s+")
WORD = re.compile(r"[\w’'…%.,/-]*\w[\w’'…%/-]*")


def paragraphs(page: str) -> Iterator[str]:
    """Yield each paragraph, each item of a list and each cell of a table as one line."""
    gathered: list[str] = []
    for line in [*COMMENT.sub("", FENCED.sub("\n", page)).splitlines(), ""]:
        ends = not line.strip() or LEFT_OUT.match(line) is not None
        if gathered and (ends or MARKER.match(line)):
            yield " ".join(gathered)
            gathered = []
        if row := ROW.match(line):
            yield from (cell.strip() for cell in CELL_END.split(SPAN.sub(_without_pipes, row[1])))
        if not ends:
            gathered.append(MARKER.sub("", line).strip())


def sentences(page: str) -> Iterator[str]:
    """Yield each sentence as a reader reads it: a span of code is one word, a link is its text."""
    for paragraph in paragraphs(page):
        plain = LINK.sub(r"\1", SPAN.sub("X", paragraph))
        yield from (one.strip(" *_") for one in ENDS.split(plain) if one.strip(" *_-"))


def words(sentence: str) -> int:
    return len(WORD.findall(sentence))


def _without_pipes(span: re.Match[str]) -> str:
    return span[0].replace("|", "/")
