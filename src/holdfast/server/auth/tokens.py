"""Tokens: who may do what. Kept in a file, hashed, so that the way in does not hang on the store.

A token is `hf_ID_SECRET`; the secret has 256 random bits, so one round of SHA-256 is hash enough.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from holdfast.domain import names
from holdfast.domain.errors import InvalidInput, InvalidSetting

log = logging.getLogger("holdfast.server")

TOKENS_MAX = 10_000
FILE_MAX_BYTES = 16 * 1024 * 1024
TEXT_MAX_CHARS = 200
POLL_SECONDS = 1.0  # how soon a changed file counts
SETTING = "HOLDFAST_TOKENS"
OWNER_ONLY = 0o600
GROUP_MAY = stat.S_IRGRP  # beside its owner, a group may read the file: that is all


class Role(StrEnum):
    """The roles of tokens: each may do what those before it may."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # submit, and act on tasks, plans, triggers and queues
    ADMIN = "admin"  # act on the service: workers, repairs

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {role: rank for rank, role in enumerate(Role)}  # looked up for every request


class Token(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    role: Role
    hash: str
    tenants: tuple[str, ...] = ()  # none: all of them
    created_at: float = 0.0
    expires_at: float | None = None
    rate: float | None = None  # requests a second; None: as the service says

    def counts(self, now: float) -> bool:
        return self.expires_at is None or now < self.expires_at


class _Book(msgspec.Struct):
    tokens: tuple[Token, ...] = ()


def make(
    name: str,
    role: Role,
    *,
    tenants: Sequence[str] = (),
    now: float = 0.0,
    expires_at: float | None = None,
    rate: float | None = None,
) -> tuple[Token, str]:
    """Return a new token, and its text, which is kept nowhere."""
    token_id = secrets.token_hex(6)
    text = f"hf_{token_id}_{secrets.token_urlsafe(32)}"
    token = Token(
        id=token_id,
        name=names.check("token", name),
        role=role,
        hash=hash_text(text),
        tenants=tuple(names.check("tenant", tenant) for tenant in tenants),
        created_at=now,
        expires_at=expires_at,
        rate=rate,
    )
    return token, text


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def is_same_text(given: str, secret: str) -> bool:
    """Compare two texts in a time that tells nothing of how much of one is right."""
    return hmac.compare_digest(hash_text(given), hash_text(secret))


class Tokens:
    """The tokens that count now."""

    def __init__(self, tokens: Sequence[Token] = ()) -> None:
        self._by_id = {token.id: token for token in tokens}

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._by_id.values())

    def find(self, token_id: str, *, now: float) -> Token | None:
        token = self._by_id.get(token_id)
        return token if token is not None and token.counts(now) else None

    def check(self, text: str, *, now: float) -> Token | None:
        """Return the token of this text; an unknown id takes as long as a wrong secret."""
        if len(text) > TEXT_MAX_CHARS:
            return None
        token = self._by_id.get(text.split("_", 2)[1] if text.count("_") >= 2 else "")
        is_right = hmac.compare_digest(token.hash if token else hash_text(""), hash_text(text))
        return self.find(token.id, now=now) if token is not None and is_right else None


class TokenFile:
    """The file of `holdfast tokens`. A change counts within a second, without a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._complaint = ""  # the last one: a file that stays bad is logged once
        self._polled_at = -POLL_SECONDS
        self._tokens = Tokens()

    def current(self, *, steady: float) -> Tokens:
        """Return the tokens of the file; while it cannot be read, the former ones stay in force."""
        if steady - self._polled_at >= POLL_SECONDS:
            self._polled_at = steady
            try:
                if (mark := self._mark()) != self._seen:
                    self._tokens, self._seen = Tokens(read(self.path)), mark
                self._complaint = ""
            except (InvalidSetting, OSError) as error:
                self._complain(str(error))
        return self._tokens

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            log.error("cannot read the tokens file, the previous tokens stay valid: %s", complaint)
        self._complaint = complaint

    def _mark(self) -> tuple[int, ...]:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def read(path: Path) -> tuple[Token, ...]:
    """Return the tokens of a file that is closed to others; any other file is refused."""
    try:
        with os.fdopen(_open_at_once(path), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise InvalidSetting(SETTING, str(path), "it is no file, but a pipe or a device")
            check_mode(path, mode)
            body = file.read(FILE_MAX_BYTES + 1)
        if len(body) > FILE_MAX_BYTES:
            raise InvalidSetting(SETTING, str(path), f"it has more than {FILE_MAX_BYTES} bytes")
        tokens = msgspec.json.decode(body, type=_Book).tokens
    except FileNotFoundError:
        raise InvalidSetting(SETTING, str(path), "there is no such file") from None
    except OSError as error:
        raise InvalidSetting(SETTING, str(path), error.strerror or str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSetting(SETTING, str(path), f"it cannot be read: {error}") from error
    if len(tokens) > TOKENS_MAX:
        raise InvalidSetting(SETTING, str(path), f"it has more than {TOKENS_MAX} tokens")
    return tuple(
        msgspec.structs.replace(one, tenants=tuple(map(names.normalise, one.tenants)))
        for one in tokens
    )


def _open_at_once(path: Path) -> int:
    """Open a file without a wait: at a pipe without a writer, the service would answer nobody."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def check_mode(path: Path, mode: int) -> None:
    """Refuse a file that others may use, or that its group may do more with than read."""
    if not (wrong := stat.S_IMODE(mode) & (stat.S_IRWXO | stat.S_IRWXG & ~GROUP_MAY)):
        return
    whom = "others" if wrong & stat.S_IRWXO else "its group"
    reason = (
        f"its mode {stat.S_IMODE(mode):04o} gives rights to {whom}; its group may read it, and "
        f"that is all: `chmod 0640 {path}`, and in Kubernetes `defaultMode: 0440` of the volume"
    )
    raise InvalidSetting(SETTING, str(path), reason)


def write(path: Path, tokens: Sequence[Token]) -> None:
    """Write the file whole or not at all, for its owner, and for the group that could read it."""
    body = msgspec.json.format(msgspec.json.encode(_Book(tuple(tokens))), indent=2)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    try:
        with os.fdopen(opened, "wb") as file:
            _keep_group(path, opened)
            file.write(body + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _keep_group(path: Path, opened: int) -> None:
    """Let the group that could read the former file read the new one; without it, the service of
    another user could not."""
    if not path.exists() or not (former := path.stat()).st_mode & GROUP_MAY:
        return
    try:
        os.fchown(opened, -1, former.st_gid)
    except PermissionError:
        return  # another's group: that stays a matter of its owner
    os.fchmod(opened, OWNER_ONLY | GROUP_MAY)


def without(tokens: Sequence[Token], name: str) -> tuple[Token, ...]:
    kept = tuple(token for token in tokens if name not in (token.id, token.name))
    if len(kept) == len(tokens):
        raise InvalidInput(f"there is no token {name!r}")
    return kept
