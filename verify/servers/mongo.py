"""A real process that speaks MongoDB's wire protocol, to be killed and started again."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from verify.servers.binary import NoServer
from verify.servers.process import HOST, Listening

MODULE = "nx_27017"


class MongoServer(Listening):
    """``with MongoServer() as server: AsyncMongoClient(server.url)``

    The server is nx-27017, which stores documents as MongoDB does but answers other counts. After
    a kill and a start it has what it had stored.
    """

    NAME = "mongo"
    BOUND = (b"Listening on",)
    READY_SECONDS = 60.0
    GRACE_SECONDS = 60.0

    def __init__(self, *, folder: Path | None = None) -> None:
        super().__init__(folder)

    @property
    def url(self) -> str:
        return f"mongodb://{HOST}:{self.port}"

    def _command(self, port: int, /) -> list[str]:
        if find_spec(MODULE) is None:
            raise NoServer("nx-27017 is not installed here: `make venv` brings it")
        # Its own log and pid file would else be the same for all servers of the machine.
        place = ("--data-dir", "data", "--log-file", "nx.log", "--pid-file", "nx.pid")
        return [sys.executable, "-m", f"{MODULE}.{MODULE}", "--host", HOST, "-p", str(port), *place]
