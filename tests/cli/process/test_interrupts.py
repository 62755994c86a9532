"""Ctrl-C at any moment: no traceback, and the exit code of an interrupted program."""

import signal
import subprocess
import sys

import pytest

from tests.support.cli.world import World

# Whoever runs the tests in the background ignores Ctrl-C.
START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

def press_ctrl_c(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
"""
WHILE_IMPORTING = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "holdfast.cli.root":
            press_ctrl_c()

sys.meta_path.insert(0, Finder())
"""
WHILE_IT_IS_BUILT = """
import typer.main
build = typer.main.get_group

def get_group(*args, **options):
    press_ctrl_c()
    return build(*args, **options)

typer.main.get_group = get_group
"""
BEFORE_IT_RUNS = """
from holdfast.cli.exit_codes import Root
begin = Root.main

def start(self, *args, **options):
    press_ctrl_c()
    return begin(self, *args, **options)

Root.main = start
"""
WHILE_IT_RUNS = """
import holdfast.stores.sqlite.views.store as store
look = store.SqliteViews.find

async def find(self, *args, **options):
    press_ctrl_c()
    return await look(self, *args, **options)

store.SqliteViews.find = find
"""
AT_THE_END = """
import atexit
atexit.register(press_ctrl_c)
"""
GO = """
from holdfast_command import main
main()
"""


@pytest.mark.parametrize(
    ("moment", "code"),
    [
        (WHILE_IMPORTING, -signal.SIGINT),
        (WHILE_IT_IS_BUILT, -signal.SIGINT),
        (BEFORE_IT_RUNS, -signal.SIGINT),
        (WHILE_IT_RUNS, 130),
        (AT_THE_END, -signal.SIGINT),
    ],
    ids=["importing", "building", "beginning", "running", "ending"],
)
def test_ctrl_c_prints_no_traceback(world: World, moment: str, code: int) -> None:
    world.upgrade(tenant="t-1")
    done = subprocess.run(
        [sys.executable, "-c", START + moment + GO, "--store", world.url, "tasks", "list"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "KeyboardInterrupt" not in done.stderr


def test_a_parent_that_ignores_ctrl_c_is_obeyed(world: World) -> None:
    world.upgrade(tenant="t-1")
    ignored = START.replace("signal.default_int_handler", "signal.SIG_IGN")
    done = subprocess.run(
        [sys.executable, "-c", ignored + AT_THE_END + GO, "--store", world.url, "tasks", "list"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "tenant.upgrade" in done.stdout
