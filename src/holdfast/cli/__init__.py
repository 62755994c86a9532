"""The command line. One file per noun; `root.py` puts them together."""

__all__ = ["main"]


def main() -> None:
    from holdfast.cli.root import cli

    cli()
