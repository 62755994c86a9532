"""The entry point of the command `holdfast`, outside the package so that it is imported first.

Until a command runs, and after it has ended, Ctrl-C ends the process as it ends any other program:
at once and without a traceback. While a command runs, the command line says how it stops.
"""

import os
import signal
from collections.abc import Callable

__all__ = ["main"]


def main() -> None:
    """Run the command line; a SIGINT that the parent ignores stays ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        _command()()
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = _command()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            command()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:  # the command had not begun, or had ended
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _command() -> Callable[[], object]:
    """Import all commands and build the command line of them, which takes most of a start."""
    from typer.main import get_command

    from holdfast.cli.root import cli

    return get_command(cli)
