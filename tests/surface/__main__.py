"""`python -m tests.surface` writes the snapshots anew, from what the code gives now."""

from tests.surface import snapshots
from tests.surface.catalogue import QUICK


def renew() -> None:
    for name, now in QUICK.items():
        lines = now()
        said = snapshots.difference(name, lines)
        snapshots.write(name, lines)
        print(said.rpartition("\n")[0] if said else f"{name}: unchanged, {len(lines)} facts")


renew()
