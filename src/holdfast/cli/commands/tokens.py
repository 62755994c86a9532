"""`holdfast tokens` creates, lists and revokes tokens for the HTTP API."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.extras import check_server
from holdfast.cli.output.printer import Row, hint, print_json, print_list, say
from holdfast.domain.durations import seconds
from holdfast.domain.errors import InvalidSetting, Refused
from holdfast.domain.phrases import span
from holdfast.domain.task.envelope import iso
from holdfast.insight.views import operations as views
from holdfast.insight.views.tasks import at
from holdfast.insight.views.view import keys
from holdfast.settings import load

if TYPE_CHECKING:
    from holdfast.server.auth.tokens import Token

tokens = CommandGroup(help="Create, list and revoke tokens for the HTTP API.")

SETTING = "HOLDFAST_TOKENS"
ROLES = ("viewer", "operator", "admin")

File = Annotated[Path | None, opt.takes("PATH", f"The tokens file; default: {SETTING}.")]


class NameTaken(Refused, stored_name="NameTaken"):
    code = "name-taken"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a token {name} already; revoke it first, or take another name")


@tokens.command("create", epilog=f"JSON: {keys(views.TokenCreated)}.")
def create(
    name: Annotated[str, opt.argument("NAME", "The name of the token; the audit shows it.")],
    *,
    role: Annotated[str, opt.takes("ROLE", f"The role: {', '.join(ROLES)}.")],
    tenant: Annotated[
        list[str] | None, opt.takes("NAME", "Limit the token to this tenant; repeatable.")
    ] = None,
    expires: Annotated[
        str | None, opt.takes("AFTER", "When it expires: 30d, 12h; default: never.")
    ] = None,
    rate: Annotated[float | None, opt.takes("N", "Allowed requests per second.", min=0.01)] = None,
    file: File = None,
    json: opt.Json = False,
) -> None:
    """Create a token and print it, once: only its hash is stored."""
    check_server()
    from holdfast.server.auth.tokens import Role, make

    if role not in ROLES:
        raise opt.WrongUsage(f"--role {role} is not a role; choose viewer, operator or admin")
    now, path = time.time(), _path(file)
    token, text = make(
        name,
        Role(role),
        tenants=tenant or (),
        now=now,
        expires_at=None if expires is None else now + seconds(expires),
        rate=rate,
    )
    with _change_file(path) as known:
        if any(name in (other.name, other.id) for other in known):
            raise NameTaken(name)
        known.append(token)
    if json:
        created: views.TokenCreated = {"token": text, **_view(token, now)}
        print_json(created)
        return
    print(text)
    hint(f"{path} has only the hash: the token is not shown again")
    if file is not None:
        hint(f"for the service: export {SETTING}={path}")


@tokens.command(
    "list", epilog=f"JSON: {keys(views.TokenList, tokens=views.TokenView)}. tenants: empty for all."
)
def list_(*, file: File = None, json: opt.Json = False) -> None:
    """List the tokens, without their secrets."""
    check_server()
    from holdfast.server.auth.tokens import read

    now, known = time.time(), read(_path(file))
    print_list(
        views.TokenList(tokens=[_view(token, now) for token in known]),
        [_row(token, now) for token in known],
        json=json,
        empty="there are no tokens; create one: holdfast tokens create NAME --role viewer",
        keep=3,
    )


@tokens.command("revoke", epilog=f"JSON: {keys(views.TokensRevoked, revoked=views.TokenView)}.")
def revoke(
    name: Annotated[str, opt.argument("NAME|ID", "The name or the id of a token.")],
    *,
    file: File = None,
    json: opt.Json = False,
) -> None:
    """Revoke a token. Within a second, the service no longer accepts it."""
    check_server()
    from holdfast.server.auth.tokens import without

    now = time.time()
    with _change_file(_path(file)) as known:
        kept = without(known, name)
        gone = [token for token in known if token not in kept]
        known[:] = kept
    if json:
        print_json(views.TokensRevoked(revoked=[_view(token, now) for token in gone]))
        return
    for token in gone:
        say(f"revoked {token.name} ({token.id})")


@contextmanager
def _change_file(path: Path) -> Iterator[list[Token]]:
    """Yield the tokens and write the list afterwards; a lock makes concurrent changes wait."""
    from holdfast.server.auth.tokens import read, write

    if not path.parent.is_dir():
        raise InvalidSetting(SETTING, str(path), "there is no such directory")
    with _lock_directory(path.parent):
        tokens = list(read(path)) if path.exists() else []
        yield tokens
        try:
            write(path, tokens)
        except OSError as error:
            raise InvalidSetting(SETTING, str(path), error.strerror or str(error)) from error


@contextmanager
def _lock_directory(folder: Path) -> Iterator[None]:
    """Hold a lock on the directory itself, which leaves no file and ends with the process."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows has none: two commands at once may then lose a change
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _path(given: Path | None) -> Path:
    path = given or load().tokens
    if path is None:
        raise opt.WrongUsage(f"name the tokens file with --file or {SETTING}")
    return path.absolute()


def _view(token: Token, now: float) -> views.TokenView:
    end = token.expires_at
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "tenants": list(token.tenants),
        "createdAt": iso(token.created_at),
        "expiresAt": at(end),
        "expired": end is not None and end <= now,
        "rate": token.rate,
    }


def _row(token: Token, now: float) -> Row:
    return {
        "NAME": token.name,
        "ROLE": token.role,
        "EXPIRES": _format_end(token.expires_at, now),
        "ID": token.id,
        "TENANTS": ",".join(token.tenants) or "all",
        "RATE": "-" if token.rate is None else f"{token.rate:g}/s",
        "MADE": f"{span(now - token.created_at)} ago" if token.created_at else "-",
    }


def _format_end(at: float | None, now: float) -> str:
    if at is None:
        return "never"
    return f"in {span(at - now)}" if at > now else "expired"
