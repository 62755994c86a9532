"""Hides secrets where stored values and texts are shown: by the names of fields, and by patterns.

Letters that look like Latin ones count as Latin (`lookalikes.py`). The patterns of secrets in a
text are in `secret_patterns.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.lookalikes import fold_lookalikes
from holdfast.domain.secret_patterns import BETWEEN, HIDDEN, HINTS, VALUE, compile_pattern
from holdfast.domain.task.task import Failure

SECRET_MARK = "holdfast.secret"  # the one field of an object that stands for a stored secret
DEPTH_LIMIT = 100  # values nested deeper are not shown at all

# Without case and separators, also as a part of a name: db_password, apiKey, X-Auth-Token.
_SECRET = re.compile(
    "password|passwd|passphrase|pwd|secret|token|apikey|accesskey|privatekey|signingkey"
    "|accountkey|authorization|credential|cookie|^auth$"
)
_PASS = re.compile(r"(?:^|[\W_]|(?<=[a-z])(?=P))[Pp](?:ass|ASS)$")  # db_pass, dbPass; no compass
_COUNTED = re.compile("tokens$|tokens?(?:count|limit|used|usage|total|budget)$")  # how many
_FLAG = re.compile(r"--[\w-]{1,60}")  # --password, and its value is the next of a list
_NAMES, _VALUE_OF = ("name", "key"), "value"  # as in [{"name": "DB_PASSWORD", "value": "x"}]
_SEPARATORS = re.compile(r"[\W_]+")
_SEPARATORS_BUT_STAR = re.compile(r"[^\w*]+|_+")


class Redactor:
    """A redactor hides secrets by ``names`` and ``patterns``, in addition to the usual ones.

    With ``usual=False`` it does not use these: where a guess must not change what an application
    gets. Names are compared without case and separators, and ``*`` stands for any part of a name.
    A pattern is a regular expression; its matches are hidden. No method raises, for any input.
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
        """Return a JSON value with secret fields hidden, and the secrets in each text."""
        return self._hide_secrets(value, 0, by_name=True)

    def strings(self, value: Any) -> Any:
        """Return a value redacted by patterns only, for records with field names of our own."""
        return self._hide_secrets(value, 0, by_name=False)

    def text(self, text: str) -> str:
        """Return a text, such as an error, a reason or a log line, with its secrets hidden."""
        if self._usual:
            text = _without_patterns(text)
            if not text.isascii() and (alike := fold_lookalikes(text)) != text:
                hidden = _without_patterns(alike)
                text = text if hidden == alike else hidden  # without a secret, no letter changes
        if self._pairs is not None:
            text = self._pairs.sub(rf"\1{HIDDEN}", text)
        for pattern in self._patterns:
            text = pattern.sub(_hide, text)
        return text

    def body(self, body: bytes) -> Any:
        """Return stored JSON, redacted. A body that is no JSON is not shown, only its size."""
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return f"({len(body)} bytes that are no JSON)"
        return self.value(value)

    def failure(self, failure: Failure) -> Failure:
        message, traceback = self.text(failure.message), self.text(failure.traceback)
        return replace(failure, message=message, traceback=traceback)

    def is_secret(self, name: str) -> bool:
        return (self._usual and is_secret(name)) or self._is_declared(name)

    def _is_declared(self, name: str) -> bool:
        if self._names is None:
            return False
        if self._names.match(_fold_name(name)) is not None:
            return True
        return not name.isascii() and bool(self._names.match(_fold_name(fold_lookalikes(name))))

    def _hides(self, name: str, item: Any) -> bool:
        """Return whether a field is hidden; a count of tokens is shown unless declared secret."""
        if not self._usual or not is_secret(name):
            return self._is_declared(name)
        is_count = type(item) in (int, float) and _COUNTED.search(_fold_name(name)) is not None
        return not is_count or self._is_declared(name)

    def _hide_secrets(self, value: Any, depth: int, *, by_name: bool) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if depth > DEPTH_LIMIT or (isinstance(value, Mapping) and SECRET_MARK in value):
            return HIDDEN
        if isinstance(value, Mapping):
            named = by_name and self._is_named_secret(value)
            return {
                self.text(name): HIDDEN
                if by_name and (self._hides(name, item) or (named and name.lower() == _VALUE_OF))
                else self._hide_secrets(item, depth + 1, by_name=by_name)
                for name, item in ((str(name), item) for name, item in value.items())
            }
        if isinstance(value, bytes | bytearray):
            return self.text(value.decode(errors="backslashreplace"))
        if isinstance(value, Sequence | set | frozenset):
            return self._show_items(value, depth + 1, by_name=by_name)
        return value

    def _show_items(self, items: Iterable[Any], depth: int, *, by_name: bool) -> list[Any]:
        shown, before = list[Any](), None
        for item in items:
            if by_name and self._is_flag(before):
                shown.append(HIDDEN)
            elif by_name and self._is_pair(item):
                shown.append([self.text(item[0]), HIDDEN])
            else:
                shown.append(self._hide_secrets(item, depth, by_name=by_name))
            before = item
        return shown

    def _is_flag(self, item: Any) -> bool:
        """Return whether an item of an argument list is an option whose value is the next item."""
        if not isinstance(item, str) or not item.startswith("--"):
            return False
        return _FLAG.fullmatch(item) is not None and self.is_secret(item)

    def _is_pair(self, item: Any) -> bool:
        """Return whether an item of a list is a pair of name and value, as in headers and forms."""
        return (
            isinstance(item, list | tuple)
            and len(item) == 2
            and isinstance(item[0], str)
            and self._hides(item[0], item[1])
        )

    def _is_named_secret(self, value: Mapping[Any, Any]) -> bool:
        names = [item for name, item in value.items() if str(name).lower() in _NAMES]
        return any(isinstance(name, str) and self.is_secret(name) for name in names)


def _pairs_of(folded: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern of declared names in a text: `ssn=…`, `'ssn': …`, `"ssn": …`. Separators may
    stand between their letters, and a star matches a bounded part."""
    names = [r"[-_. ]?".join(_letter(mark) for mark in name) for name in sorted(folded)]
    if not names:
        return None
    return re.compile(rf"(?i)(?<![A-Za-z0-9])((?:{'|'.join(names)}){BETWEEN}){VALUE}")


def _letter(mark: str) -> str:
    return r"[\w-]{0,40}" if mark == "*" else re.escape(mark)


USUAL = Redactor()


def is_secret(name: str) -> bool:
    """Return whether a field's name is one of the usual names of secrets."""
    return _is_short_secret(name) if len(name) <= 64 else _looks_secret(name)


def _looks_secret(name: str) -> bool:
    plain = fold_lookalikes(name)
    return _SECRET.search(_fold_name(plain)) is not None or _PASS.search(plain) is not None


_is_short_secret = lru_cache(maxsize=4096)(_looks_secret)


def _without_patterns(text: str) -> str:
    """Return the text with what looks like a secret hidden."""
    lower = text.lower()
    for rule in dict.fromkeys([rule for hint, rule in HINTS if hint in lower]):
        text = compile_pattern(rule.pattern).sub(rule.shown, text)
    return text


def _fold_name(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()


def _hide(found: re.Match[str]) -> str:
    return HIDDEN if found.group() else ""  # a pattern may match nothing, everywhere
