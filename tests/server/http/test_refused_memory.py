"""What a refused request has brought is let go of with its answer, before a collection."""

import gc
from collections.abc import Iterator

import pytest

from holdfast.server.http.bodies import StrictRequest
from tests.server.conftest import declared
from tests.support.server.listener import BOUND_SECONDS, Listening, listening
from tests.support.server.wire import APPLY, ask
from verify.servers.poll import until


@pytest.fixture
def server() -> Iterator[Listening]:
    with listening(declared(), workers=0) as served:
        yield served
        gc.enable()


def requests_left() -> int:
    return sum(type(one) is StrictRequest for one in gc.get_objects())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"type": "none", "payload": 1, "waitSeconds": 0}', 404),
        (b'{"type": "mail.send", "payload": 7, "waitSeconds": 0}', 422),
        (b'{"type": "mail.send", "other": 1}', 422),
        (b"{", 422),
        (b" " * 9_000_000, 413),
    ],
    ids=["unknown type", "wrong payload", "wrong field", "no JSON", "too large"],
)
def test_a_refused_request_leaves_nothing_in_memory(
    server: Listening, body: bytes, status: int
) -> None:
    gc.collect()
    gc.disable()
    for _ in range(3):
        assert ask(server, "POST", APPLY, body).status == status
    until(lambda: requests_left() == 0, "all are let go of", seconds=BOUND_SECONDS)
