"""Errors of the server and of the driver, as the errors that the engine knows."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Sequence

import redis

from holdfast.domain.errors import (
    StoreError,
    StoreForeign,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
)
from holdfast.stores.redis.client.address import Address
from holdfast.stores.redis.client.driver_connection import CONNECT_SECONDS_MAX

log = logging.getLogger("holdfast.stores.redis.faults")

ACL_HELP = "docs/redis.md has the ACL line that Holdfast needs"

CONNECTING = "Timeout connecting"  # the driver's words
ASKING = "Timeout asking"  # our words, for a connection that is opened for one question
AT_FIRST = (CONNECTING, ASKING)

FULL = {"OOM", "MISCONF"}
DENIED = {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"}
MOVING = {"READONLY", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "UNBLOCKED"}
WAITING = {"LOADING", "BUSY", "NOREPLICAS"}
STALE = MOVING | {"LOADING", "NOREPLICAS"}  # a server that answers so is not, or not yet, primary

# Redis 6.2 wraps the error of a command in a script; from 7.0 on the error comes first.
_IN_SCRIPT = re.compile(r"@user_script: ?\d+: -?([A-Z]{3,})\b")
_FIRST = re.compile(r"-?([A-Z]{3,})\b")
_LINE = re.compile(r",? ?(?:script: [0-9a-f]{40}, on )?@user_script: ?(\d+):?\.?")
_RUNNING = re.compile(r"Error running script(?: \(call to f_[0-9a-f]{40}\))?: *-?")
_COMMAND = re.compile(r"'([A-Z]{2,})'")
_DENIED_IN_SCRIPT = re.compile(r"ACL failure in script|executing the script can't run")
_CONNECTING = re.compile(r"^Error \S+ connecting to \S+\. ?")  # the driver's words
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NO_SENTINEL = re.compile(r"unknown command .sentinel\b", re.IGNORECASE)
_NOT_LOCAL = "non local key"  # a script met a key that a resharding had moved already


def code_of(error: BaseException) -> str:
    """Return the server's error code, or nothing if the error is not the server's."""
    if not isinstance(error, redis.RedisError):
        return ""
    text = str(error)
    if _DENIED_IN_SCRIPT.search(text):
        return "NOPERM"
    if _NOT_LOCAL in text:
        return "TRYAGAIN"
    match = _IN_SCRIPT.search(text)
    if match is None and error.status_code and error.status_code != "ERR":
        return error.status_code
    match = match or _FIRST.match(text)
    return match[1] if match else error.status_code or ""


def is_cut(error: BaseException) -> bool:
    """Return whether the connection was cut or redirected, so that a repeat may succeed."""
    code = code_of(error)
    is_login = isinstance(error, redis.AuthenticationError)
    lost = isinstance(error, redis.ConnectionError) and not code and not is_login
    return lost or code in {"MOVED", "UNBLOCKED"}


def is_stale(error: BaseException) -> bool:
    return code_of(error) in STALE


def is_denied(error: BaseException) -> bool:
    return code_of(error) == "NOPERM"


def is_denial(text: str) -> bool:
    """Return whether this text, kept by a script, says that a command was refused."""
    return "NOPERM" in text or _DENIED_IN_SCRIPT.search(text) is not None


def is_wrong_type(error: BaseException) -> bool:
    return code_of(error) == "WRONGTYPE"


def without_location(error: redis.RedisError, name: str, source: str) -> redis.RedisError:
    """Return the error without its place in the script, which is logged with the line.

    The place says nothing to callers, and the server gives only the number of the line.
    """
    location, code = _LINE.search(str(error)), code_of(error)
    if location is None:
        return error
    lines, number = source.splitlines(), int(location[1])
    line = lines[number - 1].strip() if 1 <= number <= len(lines) else ""
    text = _RUNNING.sub("", _LINE.sub("", str(error)))
    is_usual = code in FULL | MOVING | WAITING  # it would be logged for each write while it lasts
    level = logging.DEBUG if is_usual else logging.WARNING
    log.log(level, "%s in %s, line %d: `%s`", text, name, number, line)
    if code == "NOPERM" and (commands := _COMMAND.findall(line)):
        text = f"{text} ({' or '.join(commands)})"  # an old server does not name the command
    return redis.ResponseError(text, status_code=code or None)


def translate(error: redis.RedisError, where: str, address: Address) -> Exception:
    """Return the fault as an error of the engine; a fault of the caller stays as it is."""
    explain = _BY_CODE.get(code_of(error))
    for kinds, explain_kind in _BY_KIND:
        explain = explain or (explain_kind if isinstance(error, kinds) else None)
    return explain(where, address, error) if explain else error


def full(where: str, _: Address, error: Exception) -> StoreFull:
    if code_of(error) == "MISCONF":
        return StoreFull(
            f"{where} cannot write to its disk, so it takes nothing: {server_text(error)}"
        )
    return StoreFull(
        f"{where} has no memory left: nothing was written; raise its maxmemory or prune "
        f"({server_text(error)})"
    )


class CommandDenied(StoreUnusable, stored_name="CommandDenied"):
    """The user may not run a command. Inside a script, what came before it stays."""


def command_denied(where: str, address: Address, error: Exception) -> StoreUnusable:
    user = address.user or "default"
    if code_of(error) == "NOPERM":
        return CommandDenied(f"{where}: user {user!r} may not: {server_text(error)}; {ACL_HELP}")
    return StoreUnusable(
        f"{where} does not let user {user!r} in: {server_text(error)}; "
        "check the user and the password in HOLDFAST_STORE"
    )


def away(where: str, address: Address, error: Exception) -> StoreError:
    below = error.__cause__
    last = below if isinstance(below, redis.RedisError) else error  # the last of several servers
    text, before = str(last), "" if last is error else f"{error}: "
    if "SSL" in text or "certificate" in text:
        reason = _CONNECTING.sub("", text).rstrip(".")
        return StoreUnusable(f"no TLS with {where}: {reason}; check ca= in HOLDFAST_STORE")
    reason = f"{before}{_reason(last, address)}"
    if isinstance(error, redis.TimeoutError) and not text.startswith(AT_FIRST):
        return StoreUnavailable(f"{where} did not answer in time: {reason}")
    hint = _other_scheme(address) if address.tls and text.startswith(CONNECTING) else ""
    unavailable = StoreUnavailable(f"{where} cannot be reached: {reason}{hint}")
    unavailable.unwritten = text.startswith(AT_FIRST) or _CONNECTING.match(text) is not None
    return unavailable


def _reason(error: Exception, address: Address) -> str:
    """Return the reason in plain words, without the host, which the message names already."""
    text = str(error)
    if text.startswith(AT_FIRST):
        return f"no answer in {min(CONNECT_SECONDS_MAX, address.timeout_seconds):g} s"
    if text.startswith("Timeout "):
        return f"nothing came in {address.timeout_seconds:g} s"
    below = error.__cause__ or error.__context__
    if text.startswith("Error ") and isinstance(below, OSError):
        text = _of_the_system(below) or text
    return f"{text[:1].lower()}{text[1:]}".rstrip(".")


def _of_the_system(error: OSError) -> str:
    """Return the errors of the operating system: localhost, for example, may have several."""
    if isinstance(error, socket.gaierror):
        return "name not known" if error.errno == socket.EAI_NONAME else error.strerror or ""
    numbers = {error.errno} if error.errno else {int(n) for n in _ERRNO.findall(str(error))}
    return ", ".join(os.strerror(number).lower() for number in sorted(numbers))


def at_first(address: Address, error: StoreUnavailable) -> StoreUnavailable:
    """Explain a connection that the server closed at once: it may have expected TLS, or none."""
    if address.tls or "closed by server" not in str(error):
        return error
    return StoreUnavailable(f"{error}{_other_scheme(address)}")


def _other_scheme(address: Address) -> str:
    scheme = address.shown.partition("://")[0]
    if address.tls:
        return f" (does it speak TLS? if not, write {scheme.replace('rediss', 'redis')}://)"
    return f" (does it speak TLS? then write {scheme.replace('redis', 'rediss')}://)"


def login_refused(where: str, address: Address, error: Exception) -> StoreError:
    if _NO_SENTINEL.search(str(error)):
        return StoreUnusable(f"{where} is no Sentinel: write {_single(address)} in HOLDFAST_STORE")
    if "unknown command" in str(error).lower():
        return StoreUnusable(f"{where} lacks a command that Holdfast needs: {server_text(error)}")
    if "cluster support disabled" in str(error):
        return StoreUnusable(f"{where} is no Cluster: write {_single(address)} in HOLDFAST_STORE")
    if "DB index" in str(error):
        return StoreUnusable(f"{where} has no such database: {server_text(error)}")
    return StoreError(f"{where}: {server_text(error)}")


def _single(address: Address) -> str:
    return "rediss://" if address.tls else "redis://"


def moving(where: str, _: Address, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{where} cannot serve now: {server_text(error)}")


def not_redis(where: str, _: Address, error: Exception) -> StoreUnusable:
    return StoreUnusable(f"{where} does not speak Redis's protocol: {error}")


def wrong_type(where: str, _: Address, error: Exception) -> StoreForeign:
    return foreign([], where, error)


def foreign(keys: Sequence[str], where: str, error: Exception | None = None) -> StoreForeign:
    names = ", ".join(keys) or f"a key ({server_text(error)})"
    return StoreForeign(
        f"{where} holds something of another program under our names: {names}; "
        "rename it, or set HOLDFAST_NAMESPACE"
    )


def unknown_primary(address: Address) -> StoreUnusable:
    return StoreUnusable(
        f"no Sentinel of {address.shown} knows a primary {address.name!r}: "
        "check the name after the hosts in HOLDFAST_STORE"
    )


def after_fork(address: Address) -> StoreUnusable:
    return StoreUnusable(
        f"{address.shown} was opened before a fork: open the store in the process that uses it"
    )


def not_open(address: Address) -> StoreUnavailable:
    return StoreUnavailable(f"{address.shown} is not open: await store.open() first")


def server_text(error: Exception | None) -> str:
    """Return the server's own words, with the code that the driver takes away."""
    code, text = getattr(error, "status_code", None), str(error)
    return f"{code} {text}" if code and code != "ERR" and not text.startswith(code) else text


Explain = Callable[[str, Address, Exception], StoreError]

_BY_CODE: dict[str, Explain] = {
    **dict.fromkeys(FULL, full),
    **dict.fromkeys(DENIED, command_denied),
    **dict.fromkeys(MOVING | WAITING, moving),
    "WRONGTYPE": wrong_type,
}
_BY_KIND: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Explain], ...] = (
    (redis.AuthenticationError, command_denied),
    ((redis.ConnectionError, redis.TimeoutError), away),
    (redis.InvalidResponse, not_redis),
    (redis.ResponseError, login_refused),
)
