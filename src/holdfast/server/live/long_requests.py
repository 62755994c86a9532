"""Requests that stay: streams, and callers who wait for a result.

Each has a place within a quota, and ends when the service stops or its token counts no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager

from fastapi.responses import StreamingResponse

from holdfast.observe.metrics import Metrics
from holdfast.server.auth.access import Caller, RequestAdmission
from holdfast.server.auth.revocation import Revocations
from holdfast.server.http import sse
from holdfast.server.http.limits import Quota
from holdfast.server.http.problems import TooManyWaits, TooManyWaitsOfToken
from holdfast.server.live.stream_quota import StreamQuota


class LongRequests:
    """The long requests of one process."""

    def __init__(
        self,
        admission: RequestAdmission,
        metrics: Metrics,
        stopping: asyncio.Event,
        *,
        places: int,
        waits_of_token: int,
    ) -> None:
        """Allow ``places`` streams and as many waits."""
        self._admission, self._metrics, self._stopping = admission, metrics, stopping
        self._revocations = Revocations(admission.find)
        self.streams = StreamQuota(places)
        self.waits = Quota(
            total=places, of_token=waits_of_token, full=TooManyWaits, token_full=TooManyWaitsOfToken
        )

    def stream(self, caller: Caller, source: AsyncIterator[bytes]) -> StreamingResponse:
        """Stream to a caller who stays, until the service stops or the token counts no more."""
        token = self._admission.token_of(caller)
        until_end = ExitStack()
        until_end.callback(self.streams.take(token.id))
        revoked = until_end.enter_context(self._revocations.watch(token))
        self._metrics.sse_streams.inc()
        until_end.callback(self._metrics.sse_streams.dec)

        def is_welcome() -> bool:
            return self._admission.find(token.id) == token

        parts = sse.beating(source, self._stopping, revoked, is_welcome)
        return sse.Stream(parts, until_end.close)

    @contextmanager
    def waiting(self, caller: Caller) -> Iterator[asyncio.Event]:
        """Keep a place for one who waits; what is yielded is set when the token counts no more."""
        token = self._admission.token_of(caller)
        with self.waits.place(token.id), self._revocations.watch(token) as revoked:
            yield revoked

    async def close(self) -> None:
        await self._revocations.close()
