"""Tab completion: the shell is told commands, options and values."""

import os
import subprocess
import sys

import pytest


def completed(words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", "from holdfast_command import main; main()"],
        env=os.environ
        | {
            "_HOLDFAST_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("holdfast aud", "audit"),
        ("holdfast audit tr", "transitions"),
        ("holdfast checkpoints re", "remove"),
        ("holdfast tasks list --ten", "--tenant"),
        ("holdfast tasks list --status FAI", "FAILED"),
    ],
)
def test_what_fits_is_offered(words: str, offered: str) -> None:
    assert offered in completed(words)


def test_the_shell_can_be_set_up() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--help"], capture_output=True, text=True, check=True
    )
    assert "--install-completion" in done.stdout
