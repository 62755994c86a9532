"""Errors are one line with a code, and the exit code says which kind."""

import asyncio
import os
import subprocess
import sys

import pytest
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.cli import exit_codes
from holdfast.cli.exit_codes import Exit, exit_code, store_first
from holdfast.domain.errors import (
    DeclarationError,
    HoldfastError,
    IllegalTransition,
    InvalidSetting,
    StoreUnavailable,
    TaskNotFound,
)
from holdfast.domain.task.state import Command, Status
from tests.support.cli.world import World


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TaskNotFound("x"), Exit.NOT_FOUND),
        (IllegalTransition(Status.PAUSED, Command.PAUSE), Exit.REFUSED),
        (StoreUnavailable("gone"), Exit.STORE),
        (InvalidSetting("A", "b", "c"), Exit.INVALID),
        (DeclarationError("x"), Exit.INVALID),
        (HoldfastError("x"), Exit.FAILED),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: HoldfastError, code: Exit) -> None:
    assert exit_code(error) is code


@pytest.mark.parametrize("error", [RuntimeError("odd"), asyncio.CancelledError()])
def test_whatever_a_command_raises_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    """A stage that cancels all tasks of its loop ends its worker, too."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(TyperGroup, "main", fail)
    assert exit_codes.Root(name="holdfast").main(["stats"], standalone_mode=False) is Exit.FAILED
    told = capsys.readouterr().err
    assert told.startswith(f"error: {type(error).__name__}")
    assert told.endswith("(HOLDFAST_DEBUG=1 shows where) [internal]\n")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [["why", "\udcff"], ["tasks", "show", "a\udc80"], ["tasks", "list", "--cursor", "\ud800"]],
)
def test_an_argument_that_is_no_text_is_refused(world: World, args: list[str]) -> None:
    told = world.cli(*args)
    assert told.exit_code == Exit.INVALID
    assert told.stderr.endswith("is not text in the encoding of this terminal [invalid-input]\n")


def test_the_help_names_every_exit_code(world: World) -> None:
    told = world.cli("--help").stdout
    for code in Exit:
        if code is not Exit.INTERRUPTED:
            assert f"  {code.value}  " in told


def test_the_help_says_what_it_is_and_what_each_command_does(world: World) -> None:
    told = world.cli("--help").stdout
    assert "Run workers, see why a task waits" in told
    commands = told.partition("Commands:")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(commands) > 15
    assert [line for line in commands if len(line.split()) < 2] == []


def test_without_arguments_the_help_is_shown(world: World) -> None:
    result = world.cli()
    assert result.exit_code == Exit.OK
    assert "Usage: holdfast" in result.stdout


def test_the_version_is_told(world: World) -> None:
    assert world.cli("--version").stdout == f"holdfast {__version__}\n"


@pytest.mark.parametrize(
    "args",
    [["tasks", "show"], ["nonsense"], ["tasks", "list", "--status", "asleep"]],
)
def test_wrong_usage_is_one_line_and_code_2(world: World, args: list[str]) -> None:
    result = world.cli(*args)
    assert result.exit_code == Exit.USAGE
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith("[usage]\n")


def test_a_group_without_a_command_lists_its_commands(world: World) -> None:
    result = world.cli("tasks")
    assert result.exit_code == Exit.USAGE
    assert result.stderr.startswith("Usage: holdfast tasks ")
    assert "rollback" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["tasks", "list", "--status", "asleep"], "invalid value for '--status': 'asleep' is"),
        (["tasks", "list", "--limit", "0"], "equal to 1. See: holdfast tasks list --help [usage]"),
        (["tasks", "list", "--bogus"], "no such option: --bogus. See: holdfast tasks list"),
        (["tasks", "shoo"], "Did you mean 'show'? See: holdfast tasks --help [usage]"),
    ],
)
def test_wrong_usage_is_told_in_our_own_form(world: World, args: list[str], message: str) -> None:
    assert message in world.cli(*args).stderr


@pytest.mark.parametrize(
    "args",
    [
        ["tasks", "list", "--older-than", "3x"],
        ["tasks", "list", "--tenant", "a|b"],
        ["audit", "transitions", "--since", "soon"],
        ["audit", "verify", "--head", "x"],
        ["bulk", "start", "retry", "--steps", "a,b"],
        ["bulk", "start", "retry", "--stop-at", "some"],
        ["prune", "--older-than", "soon"],
        ["tenants", "hold", "t-1", "--until", "soon"],
    ],
)
def test_values_are_checked_before_the_store_is_opened(world: World, args: list[str]) -> None:
    assert world.cli("tasks", "list").exit_code == Exit.STORE, "there is none"
    assert world.cli(*args).exit_code == Exit.INVALID


def test_a_wrong_store_is_named_by_the_option_that_gave_it(world: World) -> None:
    assert (
        "error: --store='foo://x': unknown store" in world.cli("--store", "foo://x", "stats").stderr
    )


def test_an_unknown_task_is_not_found(world: World) -> None:
    world.send()
    result = world.cli("tasks", "show", "nobody")
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stderr == "error: there is no task nobody [task-not-found]\n"


@pytest.mark.parametrize("command", ["list", "show x", "pause x"])
def test_a_look_at_a_store_that_is_not_there_makes_none(world: World, command: str) -> None:
    result = world.cli("tasks", *command.split())
    assert result.exit_code == Exit.STORE
    assert "error: no store at " in result.stderr
    assert not world.path.exists()


def test_a_foreign_file_is_told_as_a_store_error(world: World) -> None:
    world.path.write_text("this is a letter, not a database" * 100)
    result = world.cli("stats")
    assert result.exit_code == Exit.STORE
    assert result.stderr.endswith("[store-foreign]\n")


def test_a_store_in_memory_cannot_be_looked_at_from_outside(world: World) -> None:
    result = world.cli("stats", "--store", "memory://")
    assert result.exit_code == Exit.INVALID


def test_a_wrong_setting_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LEASE", "soon")
    result = world.cli("stats")
    assert result.exit_code == Exit.INVALID
    assert "HOLDFAST_LEASE" in result.stderr


def test_an_internal_error_is_one_line_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send()
    monkeypatch.setattr("holdfast.cli.commands.stats.counts_view", lambda _: 1 / 0)
    result = world.cli("stats", "--json")
    assert result.exit_code == Exit.FAILED
    assert result.stderr.count("\n") == 1
    assert "ZeroDivisionError" in result.stderr
    assert "Traceback" in world_with_debug(world, monkeypatch)


def world_with_debug(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(exit_codes.DEBUG, "1")
    return world.cli("stats", "--json").stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("tasks list", "tasks list"),
        ("tasks list --store X --json", "--store X tasks list --json"),
        ("tasks list --store=X", "--store=X tasks list"),
        ("tasks show -- --store X", "tasks show -- --store X"),
    ],
)
def test_the_store_may_be_named_anywhere(given: str, meant: str) -> None:
    assert store_first(given.split()) == meant.split()


def test_a_reader_that_goes_away_is_no_traceback(world: World) -> None:
    world.send()
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", "--store", world.url, "tasks", "list"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert ran.stderr == ""
