"""The text of an exception, read with care: a user's class may raise anything meanwhile."""

from __future__ import annotations

from typing import Any, ClassVar

NAME_LIMIT_CHARS = 500


class StoredName:
    """A base of our errors: ``stored_name`` is the name of the class in stored failures.

    It stays when the class is renamed in Python. A user's subclass is stored under its own name.
    """

    stored_name: ClassVar[str]
    code: ClassVar[str]

    def __init_subclass__(cls, *, stored_name: str = "", code: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if stored_name:
            cls.stored_name = stored_name
        if code:
            cls.code = code


def text_of(error: BaseException, limit_chars: int) -> str:
    """Return the message of an error; that of a group is followed by those of its errors."""
    text = _own_text(error)
    if issubclass(type(error), BaseExceptionGroup):
        leaves = (
            f"{qualified_name(type(leaf))}: {clean(_own_text(leaf), limit_chars)}"
            for leaf in leaves_of(error)
        )
        text = "; ".join((text, *leaves))
    return clean(text, limit_chars)


def qualified_name(cls: type[BaseException]) -> str:
    """Return the name of an exception's type, with its module."""
    try:
        module, name = type.__getattribute__(cls, "__module__"), bare_name(cls)
        if not isinstance(module, str) or module == "builtins":
            return clean(name, NAME_LIMIT_CHARS)
        if module.startswith("holdfast."):
            module = "holdfast"  # where users know it from
        return clean(f"{module}.{name}", NAME_LIMIT_CHARS)
    except BaseException:
        return "an exception without a name"


def bare_name(cls: type[BaseException]) -> str:
    """Return the name of an exception's type without its module; ours have a stored name."""
    module = type.__getattribute__(cls, "__module__")
    if isinstance(module, str) and module.startswith("holdfast."):
        own: str | None = type.__dict__["__dict__"].__get__(cls).get("stored_name")
        if own is not None:
            return own
    return _name_of(cls)


def leaves_of(error: BaseException, limit: int = 100) -> list[BaseException]:
    """Return the errors of a group and of the groups in it; another error is returned alone."""
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting and len(leaves) < limit:
        first = waiting.pop(0)
        if issubclass(type(first), BaseExceptionGroup):
            waiting[:0] = BaseExceptionGroup.exceptions.__get__(first)
        else:
            leaves.append(first)
    return leaves


def clean(text: str, limit_chars: int | None = None) -> str:
    """Return the text without lone surrogates, which would make a failure impossible to write."""
    start = str.__getitem__(text, slice(limit_chars))
    return start.encode(errors="backslashreplace").decode()[:limit_chars]


def _own_text(error: BaseException) -> str:
    try:
        return str.__str__(str(error))
    except BaseException as second:
        return f"its text cannot be read: {_name_of(type(second))}"


def _name_of(cls: type[BaseException]) -> str:
    """Return the name that the class statement gave, whatever a metaclass says."""
    name: str = type.__dict__["__qualname__"].__get__(cls)
    return name
