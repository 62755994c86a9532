"""The entry point of the command `holdfast`, outside the package so that it is imported first.

Until a command runs, and after it has ended, Ctrl-C ends the process as it ends any other program:
at once and without a traceback. While a command runs, the command line says how it stops.
"""

import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line; a SIGINT that the parent ignores stays ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        _run()
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from holdfast.cli.root import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        cli()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run() -> None:
    from holdfast.cli.root import cli

    cli()
