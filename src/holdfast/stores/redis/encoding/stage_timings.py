"""Durations of stage calls: a hash with a field for each span, and one for the sum."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.domain.errors import StoreUnavailable
from holdfast.ports import BUCKETS, Timings
from holdfast.stores.redis import scripts
from holdfast.stores.redis.partition import BATCH, Partition

SPANS = len(BUCKETS) + 1
SUM = "us"  # microseconds: a hash counts in whole numbers


async def observe(part: Partition, batch: Sequence[Timings]) -> None:
    grown: Counter[str] = Counter()
    for timings in batch:
        grown.update(dict(_fields(timings)))
    pairs = [(field, by) for field, by in grown.items() if by]
    for start in range(0, len(pairs), BATCH):
        words = [word for pair in pairs[start : start + BATCH] for word in pair]
        try:
            await part.call(scripts.OBSERVE, *words, again=False)
        except StoreUnavailable as error:
            if start == 0:
                raise
            # The batches before this one are written, whatever became of this one.
            raise StoreUnavailable(str(error)) from error


def _fields(timings: Timings) -> Iterator[tuple[str, int]]:
    labels = f"{timings.type} {timings.stage} {timings.outcome}"
    yield f"{labels} {SUM}", round(timings.total_seconds * 1_000_000)
    for span, count in enumerate(timings.counts):
        yield f"{labels} {span}", count


def timings_of(counted: Mapping[str, int]) -> Iterator[Timings]:
    """Return the timings in the hash; a span of newer code, unknown here, counts as the last."""
    spans: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for field, count in counted.items():
        labels, _, span = field.rpartition(" ")
        if span != SUM:
            spans[labels][min(int(span), SPANS - 1)] += count
    for labels, counts in spans.items():
        type_, stage, outcome = labels.split(" ")
        yield Timings(
            type=type_,
            stage=stage,
            outcome=outcome,
            counts=tuple(counts[span] for span in range(SPANS)),
            total_seconds=counted.get(f"{labels} {SUM}", 0) / 1_000_000,
        )


def merge_timings(timings: Iterable[Timings]) -> tuple[Timings, ...]:
    merged: dict[tuple[str, str, str], Timings] = {}
    for timing in timings:
        key = timing.type, timing.stage, timing.outcome
        merged[key] = merged[key].plus(timing) if key in merged else timing
    return tuple(merged.values())
