"""A real PostgreSQL on a loopback port of its own, in a folder of its own.

It keeps what it promises out of the box (fsync and synchronous_commit are on) and dies with its
parent. PostgreSQL refuses to run as root: there it runs as another user who exists.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from verify.servers.poll import until
from verify.servers.postgres_programs import NoPostgres, copy_programs, find_binaries
from verify.servers.process import HOST, Listening, NotStarted

OWNER = "postgres"  # the role inside the database, whoever runs the server
COMMAND_SECONDS = 120.0

USERS_INSTEAD_OF_ROOT = ("postgres", "nobody")

# What an administrator sets first; none of it is paid for with durability.
SETTINGS = (
    f"listen_addresses={HOST}",
    "unix_socket_directories=",
    "max_connections=300",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
    "dynamic_shared_memory_type=mmap",  # files of its own folder: what is killed leaves none behind
)

# Python's own, because not every system has setpriv: one word is the user, the rest is the command.
BECOME = """
import os, pwd, sys
user = pwd.getpwnam(sys.argv[1])
os.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid)
os.execv(sys.argv[2], sys.argv[2:])
"""


class PostgresServer(Listening):
    """``with PostgresServer(folder) as server: connect(server.url)``

    ``fresh_url()`` is an empty database each time. The folder stays when all is over. Killed, it
    starts again on the same port.
    """

    NAME = "postgres"
    BOUND = (b"ready to accept connections",)
    READY_SECONDS = 60.0
    GRACE_SECONDS = 60.0

    def __init__(self, folder: Path, *, binaries: Path | None = None) -> None:
        super().__init__(folder)
        self._user = _user_instead_of_root()
        self._binaries = binaries or find_binaries()
        self._databases = 0

    @property
    def url(self) -> str:
        return self._url(OWNER)

    @property
    def version(self) -> str:
        """Return the version, as in 15.8."""
        words = self._run("postgres", "--version").split()
        return next(word for word in words if word[0].isdigit())

    def fresh_url(self) -> str:
        """Return the URL of a new, empty database; the one before is dropped."""
        if self._databases:
            self._run("dropdb", "--force", *self._connection_options(), self._database)
        self._databases += 1
        self._run("createdb", *self._connection_options(), self._database)
        return self._url(self._database)

    def start(self) -> Self:
        """Start on a port of its own choice the first time, then on the same."""
        if self._port is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._settle()
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster()
        return super().start()

    def kill(self) -> None:
        """Kill the server (SIGKILL) and its children, which would otherwise serve for a moment. It
        finishes nothing, and recovers when it starts."""
        if not self.alive:
            return
        self.pause()  # so that it forks no more
        children = _children(self.pid)
        super().kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        until(lambda: not any(map(_lives, children)), "its children are gone")

    def close(self) -> None:
        """Shut the server down fast: it cuts clients off and finishes its files."""
        self._end(signal.SIGINT)
        super().close()

    @property
    def _data(self) -> Path:
        return self._home / "data"

    @property
    def _database(self) -> str:
        return f"fresh{self._databases}"

    def _url(self, database: str) -> str:
        return f"postgresql://{OWNER}@{HOST}:{self.port}/{database}"

    def _connection_options(self) -> Sequence[str]:
        return ("-h", HOST, "-p", str(self.port), "-U", OWNER)

    def _settle(self) -> None:
        """Give the other user a folder and programs that this user can reach."""
        if self._user is None:
            return
        if self._passing is None and not _is_reachable(self.folder):
            self._home = self._passing_folder()
        if not _is_reachable(self._binaries):
            self._binaries = copy_programs(self._binaries, self._home / "programs")
        os.chown(self._home, self._user.pw_uid, self._user.pw_gid)
        self._home.chmod(0o755)

    def _make_cluster(self) -> None:
        layout = ("-D", str(self._data), "-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale=C")
        self._run("initdb", "--no-sync", *layout)

    def _command(self, port: int, /) -> list[str]:
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        return self._program("postgres", "-D", str(self._data), "-p", str(port), *settings)

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            self._program(program, *arguments),
            cwd=self._home if self._home.is_dir() else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise NotStarted(f"{program} ended with {done.returncode}:\n{done.stdout[-2000:]}")
        return done.stdout

    def _program(self, program: str, *arguments: str) -> list[str]:
        command = [str(self._binaries / program), *arguments]
        if self._user is None:
            return command
        return [sys.executable, "-I", "-S", "-c", BECOME, self._user.pw_name, *command]


def _user_instead_of_root() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in USERS_INSTEAD_OF_ROOT:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres(
        f"PostgreSQL does not run as root, and there is none of {USERS_INSTEAD_OF_ROOT}"
    )


def _is_reachable(path: Path) -> bool:
    """Return whether another user can reach the folder, which will belong to that user."""
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


def _children(pid: int) -> list[int]:
    """Return the child processes, or none where the system does not list them."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
