"""Letters that look like Latin ones are replaced by these, for a search and never for display.

A text is folded character by character, so the time is linear in its length. Normalising a whole
text would sort its accents, which a hostile text makes slow.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

_CYRILLIC = "авсԁеёнһіјкӏмпорѕтуѵԛԝхзг", "abcdeehhijklmnopstuvqwxzr"
_GREEK = "αβεικλνοпρτυχωγησ", "abeiklvonptuxwyno"
_ARMENIAN = "ոսօհգցԁ", "nuohqgd"
_OTHERS = "ɑɡıʟɴʀᴛɪᴋᴡᴏᴘꜱᴀᴇᴅ", "agilnrtikwopsaed"
_MARKS = "‐‑‒–—−∶꞉﹕﹦", "------:::="

_ALIKE: Mapping[str, str] = {
    mark: latin
    for look, like in (_CYRILLIC, _GREEK, _ARMENIAN, _OTHERS, _MARKS)
    for mark, latin in zip(look, like, strict=True)
}
_DROPPED = frozenset({"Mn", "Me", "Cf"})  # accents, and invisible characters


class _Folded(dict[int, str]):
    """A table from each character to its plain form, filled on first use."""

    def __missing__(self, code: int) -> str:
        self[code] = made = _fold_mark(chr(code))
        return made


def _fold_mark(mark: str) -> str:
    if mark.isascii():
        return mark
    if (alike := _ALIKE.get(mark.lower())) is not None:
        return alike.upper() if mark.isupper() else alike
    parts = unicodedata.normalize("NFKD", mark)
    return "".join(
        _ALIKE.get(part.lower(), part)
        for part in parts
        if unicodedata.category(part) not in _DROPPED
    )


_TABLE = _Folded()


def fold_lookalikes(text: str) -> str:
    """Return the text with letters that look Latin as Latin ones, without accents."""
    return text if text.isascii() else text.translate(_TABLE)
