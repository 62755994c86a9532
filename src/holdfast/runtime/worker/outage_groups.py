"""The outages that the stages of a worker met lately, by error group, for its beat."""

from __future__ import annotations

from holdfast.domain.task.task import Failure
from holdfast.ports import OutageGroup
from holdfast.runtime.environment import WorkerEnvironment

KEPT_SECONDS = 60.0  # at least: readers of beats read them every few seconds
LIMIT = 50  # groups; a program has far fewer dependencies


class OutageGroups:
    """The groups are noted on the worker's loop and read by its heartbeat's thread."""

    def __init__(self, env: WorkerEnvironment) -> None:
        self._clock = env.clock
        self._kept_seconds = max(KEPT_SECONDS, env.options.lease_seconds)  # several beats name each
        self._seen: dict[str, tuple[float, OutageGroup]] = {}  # with when it was last met

    def note(self, failure: Failure, since: float) -> None:
        """Note an outage; ``since`` is the first of the row that it belongs to."""
        name, now = failure.fingerprint, self._clock.steady()
        known = self._seen.pop(name, None)
        if known is not None and now - known[0] < self._kept_seconds:
            since = min(since, known[1].since)
        if len(self._seen) >= LIMIT:
            self._seen.pop(next(iter(self._seen)), None)  # the one that was met longest ago
        group = OutageGroup(fingerprint=name, error=failure.error, stage=failure.stage, since=since)
        self._seen[name] = now, group

    def lately(self) -> tuple[OutageGroup, ...]:
        oldest = self._clock.steady() - self._kept_seconds
        return tuple(group for at, group in tuple(self._seen.values()) if at > oldest)
