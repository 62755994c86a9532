"""Hides secrets where stored values and texts are shown: by the names of fields, and by patterns.

A hostile text must not hold up who shows it, so each pattern begins at a fixed word and never goes
over the same text twice: possessive parts, bounds, and no two parts that could share a character.
No group is possessive: before Python 3.11.5 such a one may lose what it has matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.task import Failure

HIDDEN = "***"
DEPTH_LIMIT = 100  # what lies deeper is not shown at all

# Without case and separators, also as a part of a name: db_password, apiKey, X-Auth-Token.
_SECRET = re.compile(
    "password|passwd|passphrase|pwd|secret|token|apikey|accesskey|privatekey|signingkey"
    "|authorization|credential|cookie|^auth$"
)
_SEPARATORS = re.compile(r"[\W_]+")
_SEPARATORS_BUT_STAR = re.compile(r"[^\w*]+|_+")


class _Rule(msgspec.Struct, frozen=True):
    """``hints``: in lower case; most texts have none of them, and are not looked at further."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    shown: str = HIDDEN


def _rule(hints: str, pattern: str, shown: str = HIDDEN) -> _Rule:
    return _Rule(tuple(hints.split()), re.compile(pattern, re.ASCII | re.IGNORECASE), shown)


_QUOTE = r"""(?:\\{0,7}["'])"""
_BETWEEN = rf"{_QUOTE}?[ \t]{{0,8}}(?:=>|[:=])[ \t]{{0,8}}"
_VALUE = (
    r"""(?:"(?:[^"\\]|\\.)*"?"""  # quoted; the end may have been cut off
    r"""|'(?:[^'\\]|\\.)*'?"""
    r"""|\\{1,7}"[^"]*+"?"""  # in JSON within JSON
    r"""|[^\s,;&"']++)"""
)

_RULES = (
    _rule(
        "private",
        r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY[A-Z0-9 ]{0,40}-----"
        r"(?s:.*?)(?:-----END [A-Z0-9 ]{0,60}-----|\Z)",
    ),
    _rule("://", r'(?<=://)([^\s/:@"<>]*+):[^\s/"<>]*@', rf"\1:{HIDDEN}@"),
    _rule(
        "authorization cookie",  # the rest of the line: a scheme and more, or several cookies
        rf"""((?:authorization|cookie)[\w-]{{0,40}}+{_BETWEEN}{_QUOTE}?)[^\s"'\\][^"'\r\n\\]*+""",
        rf"\1{HIDDEN}",
    ),
    _rule("bearer", r"""\b(bearer[ \t]{1,8})[^\s"',;\\]++""", rf"\1{HIDDEN}"),
    _rule(
        "passw passphrase pwd secret token key credential",
        r"((?:passw(?:or)?d|passphrase|pwd|secret|token|credential"
        r"|(?:api|access|private|signing)[-_. ]?key)"
        rf"[\w-]{{0,40}}+{_BETWEEN}){_VALUE}",
        rf"\1{HIDDEN}",
    ),
    _rule("hf_", r"\b(hf_[a-z0-9]{1,64}+_)[\w-]{8,}+", rf"\1{HIDDEN}"),
    _rule("hf_", r"\bhf_[a-z0-9]{30,}+"),
    _rule("whsec_", r"\bwhsec_[\w+/=-]{8,}+"),
    _rule("eyj", r"(?<![\w-])eyJ[\w-]{5,}+\.[\w-]++\.[\w-]*+"),
    _rule("akia asia", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    _rule("sk- sk_", r"(?<![\w-])sk[-_][\w-]{16,}+"),
    _rule("gh github_ xox", r"\b(?:gh[pousr]_|github_pat_|xox[a-z]-)[\w-]{16,}+"),
)

_HINTS = tuple((hint, rule) for rule in _RULES for hint in rule.hints)


class Redactor:
    """With ``names`` and ``patterns`` beside the usual ones, or without these, where a guess must
    not change what an application gets (``usual=False``).

    A name counts without case and separators, ``*`` stands for any part of it. A pattern is a
    regular expression; what it matches is hidden. Nothing here raises, whatever it is given.
    """

    def __init__(
        self, names: Iterable[str] = (), patterns: Iterable[str] = (), *, usual: bool = True
    ) -> None:
        folded = {_SEPARATORS_BUT_STAR.sub("", name).lower() for name in names} - {""}
        self._names = re.compile("|".join(map(translate, sorted(folded)))) if folded else None
        self._patterns = tuple(re.compile(pattern) for pattern in patterns)
        self._pairs = _pairs_of(folded)
        self._usual = usual

    def value(self, value: Any) -> Any:
        """A JSON value with the values of such fields hidden, whatever they are, and in each text
        what the patterns match."""
        return self._shown(value, 0, by_name=True)

    def strings(self, value: Any) -> Any:
        """By the patterns only: for our own records, whose names are not the user's."""
        return self._shown(value, 0, by_name=False)

    def text(self, text: str) -> str:
        """An error, a reason, a line of a log."""
        if self._usual:
            lower = text.lower()
            for rule in dict.fromkeys([rule for hint, rule in _HINTS if hint in lower]):
                text = rule.pattern.sub(rule.shown, text)
        if self._pairs is not None:
            text = self._pairs.sub(rf"\1{HIDDEN}", text)
        for pattern in self._patterns:
            text = pattern.sub(_hide, text)
        return text

    def body(self, body: bytes) -> Any:
        """Stored JSON. Of what is none, only that is said: nobody knows its fields."""
        try:
            found = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return f"({len(body)} bytes that are no JSON)"
        return self.value(found)

    def failure(self, failure: Failure) -> Failure:
        message, traceback = self.text(failure.message), self.text(failure.traceback)
        return replace(failure, message=message, traceback=traceback)

    def is_secret(self, name: str) -> bool:
        if self._usual and is_secret(name):
            return True
        return self._names is not None and self._names.match(_folded(name)) is not None

    def _shown(self, value: Any, depth: int, *, by_name: bool) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if depth > DEPTH_LIMIT:
            return HIDDEN
        if isinstance(value, Mapping):
            return {
                self.text(name): HIDDEN
                if by_name and self.is_secret(name)
                else self._shown(item, depth + 1, by_name=by_name)
                for name, item in ((str(name), item) for name, item in value.items())
            }
        if isinstance(value, bytes | bytearray):
            return self.text(value.decode(errors="backslashreplace"))
        if isinstance(value, Sequence | set | frozenset):
            return [self._shown(item, depth + 1, by_name=by_name) for item in value]
        return value


def _pairs_of(folded: Iterable[str]) -> re.Pattern[str] | None:
    """`ssn=…`, `'ssn': …`, `"ssn": …` in a text: the names as declared, with separators between
    their letters, and a bounded part for each star."""
    names = [r"[-_. ]?".join(_letter(mark) for mark in name) for name in sorted(folded)]
    if not names:
        return None
    return re.compile(rf"(?i)(?<![A-Za-z0-9])((?:{'|'.join(names)}){_BETWEEN}){_VALUE}")


def _letter(mark: str) -> str:
    return r"[\w-]{0,40}" if mark == "*" else re.escape(mark)


USUAL = Redactor()


def redacted(value: Any) -> Any:
    """By the usual names and patterns."""
    return USUAL.value(value)


def is_secret(name: str) -> bool:
    """By the usual names."""
    return _is_secret(name) if len(name) <= 64 else _SECRET.search(_folded(name)) is not None


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return _SECRET.search(_folded(name)) is not None


def _folded(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()


def _hide(found: re.Match[str]) -> str:
    return HIDDEN if found.group() else ""  # a pattern may match nothing, everywhere
