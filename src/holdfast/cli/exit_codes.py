"""Errors become exit codes here, and one line on stderr that explains them."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import traceback
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup

from holdfast.domain import errors as err
from holdfast.domain.plain import plain_line
from holdfast.domain.task.state import SUSPENDED, Status

DEBUG = "HOLDFAST_DEBUG"  # set: an internal error shows where it happened
STORE_OPTION = "--store"
USAGE = "usage"


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    STORE = 5
    INVALID = 6
    INTERRUPTED = 130


EPILOG = """\b
Exit codes:
  0  done
  1  failed, or a check found something (doctor, audit verify)
  2  wrong usage
  3  no such task, plan, trigger, bulk action or worker
  4  refused: the present state does not allow it
  5  the store does not answer or cannot be used
  6  invalid input or setting
An error is one line on stderr, with its code at the end: [task-not-found]
"""

_NOT_FOUND = (
    err.TaskNotFound,
    err.PlanNotFound,
    err.BulkNotFound,
    err.TriggerNotFound,
    err.WorkerNotFound,
)
_CODES: tuple[tuple[tuple[type[err.HoldfastError], ...], Exit], ...] = (
    (_NOT_FOUND, Exit.NOT_FOUND),  # before REFUSED: they are refusals, too
    ((err.Refused,), Exit.REFUSED),
    ((err.StoreError,), Exit.STORE),
    ((err.InvalidInput, err.DeclarationError), Exit.INVALID),
)


def exit_code(error: err.HoldfastError) -> Exit:
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), Exit.FAILED)


def print_error(error: err.HoldfastError, *, about: str = "") -> Exit:
    """Print the error on stderr and return the exit code for it."""
    message = str(error)
    if about not in message:
        message = f"{about}: {message}"
    _print_line(f"{message}{_remedy(error, about)}", error.code)
    return exit_code(error)


def _remedy(error: err.HoldfastError, task_id: str) -> str:
    """Name the commands for a suspended task; not every legal command is under `holdfast tasks`."""
    if not isinstance(error, err.IllegalTransition) or not isinstance(error.status, Status):
        return ""
    if not task_id or error.status not in SUSPENDED:
        return ""
    commands = [f"`holdfast suspended {verb} {task_id}`" for verb in ("resume", "discard")]
    return f"; it is suspended: {' or '.join(commands)}"


def _print_line(message: str, code: str) -> None:
    print(f"error: {plain_line(message)} [{code}]", file=sys.stderr)


class Root(TyperGroup):
    """The root command; it turns whatever a command raises into an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        _escape_unprintable()
        given = list(sys.argv[1:] if args is None else args)
        try:
            _check_text(given)
            code = super().main(
                store_first(given) or ["--help"],
                prog_name or "holdfast",
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
            sys.stdout.flush()
        except (Exception, asyncio.CancelledError) as error:  # a stage can cancel its worker
            code = _explain(_name_option(error, given))
        if standalone_mode:
            sys.exit(code or Exit.OK)
        return code


def _name_option(error: BaseException, args: list[str]) -> BaseException:
    """Return the error; one in the store's URL names `--store` if the URL was given there."""
    if not isinstance(error, err.InvalidSetting) or error.name != "HOLDFAST_STORE":
        return error
    is_given = any(word.startswith(STORE_OPTION) for word in store_first(args)[:1])
    return err.InvalidSetting(STORE_OPTION, error.value, error.reason) if is_given else error


def _explain(error: BaseException) -> Exit:
    """Print why the command has ended, and return the exit code for it."""
    if isinstance(error, err.HoldfastError):
        code = print_error(error)
        return Exit.USAGE if error.code == USAGE else code
    if isinstance(error, typer.Abort):
        print(file=sys.stderr)  # end the line of the question
        _print_line("stopped; nothing was done", "aborted")
        return Exit.FAILED
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads the pipe
        return Exit.FAILED
    if hasattr(error, "format_message"):  # wrong usage, in the words of Typer
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        if message.startswith("Usage: "):  # the help of a group, of which no command was named
            print(message, file=sys.stderr)
            return Exit.USAGE
        context = getattr(error, "ctx", None)
        stop = "" if message.endswith("?") else "."
        hint = f"{stop} See: {context.command_path} --help" if context else ""
        _print_line(f"{message[:1].lower()}{message[1:]}{hint}", USAGE)
        return Exit.USAGE
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    message = f"{type(error).__name__}: {error}".removesuffix(": ")
    _print_line(f"{message} ({DEBUG}=1 shows where)", "internal")
    return Exit.FAILED


def _escape_unprintable() -> None:
    """Escape characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _check_text(args: list[str]) -> None:
    """Refuse arguments that are not text in the terminal's encoding."""
    for number, word in enumerate(args, 1):
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise err.InvalidInput(
                f"argument {number} is not text in the encoding of this terminal"
            )


def store_first(args: list[str]) -> list[str]:
    """Move `--store URL` to the front, so that users may write it anywhere."""
    end = args.index("--") if "--" in args else len(args)
    for at, word in enumerate(args[:end]):
        if word == STORE_OPTION and at + 1 < end:
            return [word, args[at + 1], *args[:at], *args[at + 2 :]]
        if word.startswith(f"{STORE_OPTION}="):
            return [word, *args[:at], *args[at + 1 :]]
    return args
