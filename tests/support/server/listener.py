"""A service that listens on loopback, in a thread: for what only a wire can show."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast import Holdfast
from holdfast.server import Service, serve
from tests.server.conftest import made_tokens

T = TypeVar("T")
BOUND_SECONDS = 60.0


@dataclass
class Listening:
    app: Holdfast
    service: Service
    tokens: dict[str, str]
    loop: asyncio.AbstractEventLoop
    url: str
    host: str
    port: int
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def do(self, making: Callable[[], Any]) -> Any:
        """Run a coroutine where the service runs."""
        return asyncio.run_coroutine_threadsafe(making(), self.loop).result(BOUND_SECONDS)

    def bearer(self, name: str = "admin") -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[name]}"}


@contextmanager
def listening(
    app: Holdfast,
    workers: int = 1,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Iterator[Listening]:
    """Serve the app while the block runs; ``loop_factory`` makes the event loop."""
    up: Future[Listening] = Future()

    def live() -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_live(app, workers, up))

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    served = up.result(BOUND_SECONDS)
    try:
        yield served
    finally:
        served.loop.call_soon_threadsafe(served.asked.set)
        thread.join(BOUND_SECONDS)
        assert not thread.is_alive(), "the service does not end"


async def _live(app: Holdfast, workers: int, up: Future[Listening]) -> None:
    try:
        tokens, texts = made_tokens()
        service = Service(app, tokens=tokens)
        bound = serve.bind("127.0.0.1", 0)
        host, port = bound.getsockname()
        loop, url = asyncio.get_running_loop(), serve.url_of(bound)
        served = Listening(app, service, texts, loop, url, host, port)
        async with service.running(workers=workers):
            await serve.answer(
                service,
                bound,
                stop=served.asked,
                stop_now=asyncio.Event(),
                on_listening=lambda: up.set_result(served),
            )
    except BaseException as error:
        if up.done():
            raise
        up.set_exception(error)
