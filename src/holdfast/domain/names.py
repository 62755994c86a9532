"""The alphabets of names. They appear in keys, logs and URLs, so they are narrow.

Names may be of any script. They are kept in Unicode's form NFC, so that names that look the same
are the same. No name has a character that is invisible or changes how other text is shown.

Free text has no alphabet, but it has a length limit, and it must be encodable.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from holdfast.domain.errors import InvalidInput, InvalidName

BYTES_PER_CHARACTER = 3  # of UTF-8, at most, over the whole of a name

# The words that follow the namespace in the names of keys (see stores/redis/keys.py).
KEY_KINDS = frozenset(
    """
    audit back bell ckpt claims counts damaged data durations errors events fences hold index kept
    key leases line lock mending meta moves payload plan plans queue queues reconciled refused
    resting result saved settled stages switches task tombstone tombstones trigger triggers workers
    """.split()
)

_LETTER, _MARK, _NUMBER, _PUNCTUATION, _SYMBOL = "L", "M", "N", "P", "S"

# Characters of these categories that are invisible: fillers, variation selectors, blanks …
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc\ufffd"
    "\U000e0100-\U000e01ef]"
)


@dataclass(frozen=True, slots=True)
class _Alphabet:
    """The characters that may stand first in a name, and those that may follow."""

    first: str  # ASCII characters, as in the brackets of a pattern
    more: str
    limit: int  # of characters
    rule: str
    others_first: str = ""  # general categories of Unicode, for other characters
    others: str = ""

    def pattern(self) -> re.Pattern[str]:
        return re.compile(rf"[{self.first}][{self.more}]{{0,{self.limit - 1}}}")

    def fault(self, name: str) -> str:
        """Return the fault of a name that is not pure ASCII; empty: there is none."""
        for number, char in enumerate(name):
            good, others = (self.more, self.others) if number else (self.first, self.others_first)
            if not _is_allowed(char, re.compile(f"[{good}]"), others):
                return f"; U+{ord(char):04X} is not allowed at position {number + 1}"
        length, size = len(name), len(name.encode())
        if length > self.limit or size > self.limit * BYTES_PER_CHARACTER:
            return f"; it has {length} characters and {size} bytes"
        return ""


def _is_allowed(char: str, of_ascii: re.Pattern[str], categories: str) -> bool:
    if char.isascii():
        return of_ascii.match(char) is not None
    return unicodedata.category(char)[0] in categories and _UNSEEN.match(char) is None


_DECLARED = _Alphabet(
    first="A-Za-z",
    more="A-Za-z0-9._-",
    limit=200,
    rule="a letter, then letters, digits and . _ - (200 characters and 600 bytes at most)",
    others_first=_LETTER,
    others=_LETTER + _MARK + _NUMBER,
)
_GIVEN = _Alphabet(
    first="A-Za-z0-9",
    more="A-Za-z0-9._:@+=/-",
    limit=200,
    rule="a letter or digit, then letters, digits and . _ : @ + = / - of ASCII and the letters, "
    "digits, signs and symbols of any script, but no space and nothing that is not seen "
    "(200 characters and 600 bytes at most)",
    others_first=_LETTER + _NUMBER + _PUNCTUATION + _SYMBOL,
    others=_LETTER + _MARK + _NUMBER + _PUNCTUATION + _SYMBOL,
)
_GIVEN_NAME = _Alphabet(
    first="A-Za-z0-9",
    more="A-Za-z0-9._-",
    limit=100,
    rule="a letter or digit, then letters, digits and . _ - (100 characters and 300 bytes at most)",
    others_first=_LETTER + _NUMBER,
    others=_LETTER + _MARK + _NUMBER,
)
_TOKEN = _Alphabet(
    first="A-Za-z0-9",
    more="A-Za-z0-9._-",
    limit=100,
    rule="a letter or digit, then letters, digits and . _ - of ASCII (100 at most)",
)
_NAMESPACE = _Alphabet(
    first="A-Za-z",
    more="A-Za-z0-9._-",
    limit=100,
    rule="segments of a letter, then letters, digits and . _ - of ASCII, with a colon between them "
    "(100 characters in all)",
)
_RULES = {
    "task type": _DECLARED,
    "stage": _DECLARED,
    "queue": _DECLARED,
    "namespace": _NAMESPACE,
    "tenant": _GIVEN,
    "key": _GIVEN,
    "trigger": _GIVEN_NAME,
    "plan": _GIVEN_NAME,
    "token": _TOKEN,
}
_IN_ASCII = {kind: alphabet.pattern() for kind, alphabet in _RULES.items()}
_LENGTHS = {"trace_id": 200, "actor": 200, "origin": 200, "reason": 2_000, "task id": 1_000}


def check(kind: str, value: object) -> str:
    """Return the name in the form NFC, or refuse it."""
    alphabet = _RULES[kind]
    if not isinstance(value, str):
        raise InvalidName(kind, value, alphabet.rule)
    if _IN_ASCII[kind].fullmatch(value) is not None:
        return value
    if kind == "namespace":
        return _namespace(value, alphabet)
    if value.isascii() or len(value) > alphabet.limit * BYTES_PER_CHARACTER:
        raise InvalidName(kind, value, alphabet.rule)
    name = normalise(value)
    if fault := alphabet.fault(name):
        raise InvalidName(kind, value, alphabet.rule + fault)
    return name


def check_any(kind: str, value: object) -> str | None:
    """Return the name as `check` does; None stays None."""
    return None if value is None else check(kind, value)


def normalise(text: str) -> str:
    """Return the text in the form in which names are stored, so that a search finds them."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def parents(namespace: str) -> list[str]:
    """Return the namespaces whose keys would begin like those of this one."""
    segments = namespace.split(":")
    return [":".join(segments[:end]) for end in range(1, len(segments))]


def _namespace(value: str, alphabet: _Alphabet) -> str:
    segments = value.split(":")
    good = all(_IN_ASCII["namespace"].fullmatch(segment) is not None for segment in segments)
    if not good or len(value) > alphabet.limit:
        raise InvalidName("namespace", value, alphabet.rule)
    if reserved := KEY_KINDS.intersection(segments):
        rule = f"its segment {min(reserved)!r} is reserved for the names of keys; choose another"
        raise InvalidName("namespace", value, rule)
    return value


def check_text(kind: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{kind} is of type {type(value).__name__}, not text")
    if len(value) > _LENGTHS[kind]:
        raise InvalidInput(f"{kind} has {len(value)} characters, the limit is {_LENGTHS[kind]}")
    try:
        return value.encode().decode()  # a plain str, whatever subclass it was
    except UnicodeEncodeError:
        raise InvalidInput(f"{kind} has a lone surrogate, which cannot be written") from None
