"""A balancer on loopback that follows `/readyz`: what a rolling restart needs in front of it."""

import http.client
import socket
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

BOUND_SECONDS = 60.0
LOOK_SECONDS = 0.02


class Backend:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "", parts.port or 0)
        self.is_ready = False
        self.connections = 0  # with those that are being made

    def look(self) -> bool:
        line = http.client.HTTPConnection(*self.address, timeout=BOUND_SECONDS)
        try:
            line.request("GET", "/readyz")
            return line.getresponse().status == 200
        except OSError:
            return False
        finally:
            line.close()


class Balancer:
    """Each connection goes, byte by byte, to the ready backend that has the fewest."""

    def __init__(self) -> None:
        self._backends = list[Backend]()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> "Balancer":
        for work in (self._accept, self._look):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        self._ended.set()
        self._listener.close()

    def add(self, url: str) -> Backend:
        backend = Backend(url)
        with self._lock:
            self._backends.append(backend)
        return backend

    def has_left(self, backend: Backend) -> bool:
        """Nothing goes there any more, and nothing is left there."""
        with self._lock:
            return not backend.is_ready and backend.connections == 0

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for backend in list(self._backends):
                is_ready = backend.look()
                with self._lock:
                    backend.is_ready = is_ready

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with self._lock:
            ready = [one for one in self._backends if one.is_ready]
            backend = min(ready, key=lambda one: one.connections)
            backend.connections += 1
        try:
            with client, socket.create_connection(backend.address) as server:
                back = threading.Thread(target=_pipe, args=(server, client), daemon=True)
                back.start()
                _pipe(client, server)
                back.join()
        finally:
            with self._lock:
                backend.connections -= 1


def _pipe(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one connection has ended; then close the other."""
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
    for line in (target, source):
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
