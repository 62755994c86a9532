"""A snapshot as Prometheus text.

We write it ourselves, because the client's collectors take about twenty times as long: a store of
50 workflows has thousands of samples, and every scrape reads all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import OPERATOR, Status
from holdfast.observe.alerts import NO_WORKERS, OF_QUEUES, SEVERITIES
from holdfast.observe.families import FAMILIES
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import BUCKETS, Stats, Switch, Timings

Labels: TypeAlias = tuple[str, ...]  # their values, in the family's order
Sample: TypeAlias = tuple[Labels, float]
Spread: TypeAlias = tuple[Labels, Sequence[int], float]  # counts of each span, the sum of all

UNSETTLED = tuple(place for place in Place if place is not Place.SETTLED)
INVARIANTS = ("I1", "I2", "I3", "I7", "I10", "I11", "I14", "I16")  # that an examination looks at
FIRST_OUTCOMES = ("done", "failed")  # of a stage that nobody has called yet
REFUSABLE = tuple(f"{status} {command}" for status in Status for command in sorted(OPERATOR))


def lines(snapshot: Snapshot) -> Iterator[str]:
    stats, live = snapshot.stats, snapshot.live
    yield from _count_lines(stats)
    yield from histogram("holdfast_stage_duration_seconds", BUCKETS, _spreads(stats.timings))
    yield from _not_called_yet(snapshot)
    by_status = {status.value: stats.by_status.get(status, 0) for status in Status}
    yield from family("holdfast_tasks", labelled_samples(by_status))
    yield from _queues(snapshot)
    yield from sample("holdfast_suspended", snapshot.suspended)
    leases = sum(places.get(Place.LEASED, 0) for places in stats.by_queue.values())
    yield from sample("holdfast_leases", leases)
    yield from sample("holdfast_checkpoints", stats.checkpoints)
    yield from sample("holdfast_tenant_locks", stats.locks)
    yield from family("holdfast_workers", _workers(snapshot))
    yield from sample("holdfast_slots", sum(worker.beat.slots for worker in live))
    yield from sample("holdfast_slots_used", sum(worker.beat.running for worker in live))
    yield from sample("holdfast_durable", snapshot.durable)
    yield from sample("holdfast_degraded", snapshot.degraded)
    yield from family("holdfast_alerts", _alerts(snapshot))
    yield from family("holdfast_stage_outages_total", _outages(stats.timings))
    yield from family("holdfast_outage_seconds", _lasting(snapshot))
    if snapshot.findings is not None:
        findings = {**dict.fromkeys(INVARIANTS, 0), **snapshot.findings}
        yield from family("holdfast_doctor_findings", labelled_samples(findings))


def sample(name: str, value: float) -> Iterator[str]:
    return family(name, [((), value)])


def labelled_samples(values: Mapping[str, float]) -> Iterator[Sample]:
    return (((label,), value) for label, value in values.items())


def family(name: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield from _head(name)
    names = FAMILIES[name].labels
    for values, value in samples:
        yield (
            f"{name}{{{labels(names, values)}}} {number(value)}"
            if names
            else (f"{name} {number(value)}")
        )


def _head(name: str) -> Iterator[str]:
    described = FAMILIES[name]
    yield f"# HELP {name} {described.help}"
    yield f"# TYPE {name} {described.kind}"


def labels(names: Iterable[str], values: Iterable[str]) -> str:
    return ",".join(
        f'{name}="{escape_label(value)}"' for name, value in zip(names, values, strict=True)
    )


def escape_label(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    return repr(value + 0)  # a bool, too, is a number here


def histogram(name: str, ends: Iterable[float], spreads: Iterable[Spread]) -> Iterator[str]:
    yield from _head(name)
    names = FAMILIES[name].labels
    within = [*(f'le="{end!r}"' for end in ends), 'le="+Inf"']
    for values, counts, total in spreads:
        about = labels(names, values)
        bucket = f"{name}_bucket{{{about},"
        for end, count in zip(within, accumulate(counts), strict=True):
            yield f"{bucket}{end}}} {count}"
        yield f"{name}_sum{{{about}}} {number(total)}"
        yield f"{name}_count{{{about}}} {sum(counts)}"


def _spreads(timings: Iterable[Timings]) -> Iterator[Spread]:
    return (((one.type, one.stage, one.outcome), one.counts, one.total_seconds) for one in timings)


def _not_called_yet(snapshot: Snapshot) -> Iterator[str]:
    """Yield 0 for each declared stage and outcome that has not occurred: a rule sees how a series
    grows, not that it begins, and would miss the first burst."""
    name = "holdfast_stage_duration_seconds"
    met = {(one.type, one.stage, one.outcome) for one in snapshot.stats.timings}
    for declared in snapshot.stages:
        for outcome in FIRST_OUTCOMES:
            if (*declared, outcome) not in met:
                about = labels(FAMILIES[name].labels, (*declared, outcome))
                yield f'{name}_bucket{{{about},le="+Inf"}} 0'
                yield f"{name}_sum{{{about}}} 0.0"
                yield f"{name}_count{{{about}}} 0"


def _count_lines(stats: Stats) -> Iterator[str]:
    entered: defaultdict[Labels, float] = defaultdict(float)
    moved: defaultdict[Labels, float] = defaultdict(float)
    dwelt: defaultdict[Labels, float] = defaultdict(float)
    left: defaultdict[Labels, float] = defaultdict(float)
    for move in stats.moves:
        entered[move.queue, move.type, move.after] += move.count
        moved[move.before, move.after] += move.count
        dwelt[(move.before,)] += move.dwell_seconds
        left[(move.before,)] += move.count
    counts = dict.fromkeys(REFUSABLE, 0) | dict(stats.refused)
    refused = (((*what.partition(" ")[::2],), count) for what, count in counts.items())
    yield from family("holdfast_tasks_total", entered.items())
    yield from family("holdfast_transitions_total", moved.items())
    yield from family("holdfast_dwell_seconds_total", dwelt.items())
    yield from family("holdfast_dwells_total", left.items())
    yield from family("holdfast_refused_total", refused)


def _queues(snapshot: Snapshot) -> Iterator[str]:
    queues, by_queue = snapshot.queues, snapshot.stats.by_queue
    depths = (
        ((queue, place.value), by_queue.get(queue, {}).get(place, 0))
        for queue in queues
        for place in UNSETTLED
    )
    ages = {queue: snapshot.oldest_seconds(queue) for queue in queues}
    yield from family("holdfast_queue_depth", depths)
    yield from family("holdfast_queue_oldest_age_seconds", labelled_samples(ages))
    for switch in (Switch.INTAKE, Switch.CLAIMING):
        paused = snapshot.switched_names(switch)
        states = {queue: queue in paused for queue in queues}
        yield from family(f"holdfast_{switch.value}_paused", labelled_samples(states))
    yield from sample("holdfast_tenants_held", len(snapshot.switched_names(Switch.HOLD)))


def _workers(snapshot: Snapshot) -> Iterator[Sample]:
    draining = snapshot.switched_names(Switch.DRAIN)
    leaving = sum(worker.beat.worker in draining for worker in snapshot.live)
    live = len(snapshot.live)
    lost = len(snapshot.workers) - live
    return labelled_samples({"live": live - leaving, "draining": leaving, "lost": lost})


def _outages(timings: Iterable[Timings]) -> Iterator[Sample]:
    """Count outages of stages and undos together, with 0 for a stage that has met none."""
    counts: dict[Labels, float] = {}
    for timed in timings:
        met = timed.count if timed.outcome.endswith("outage") else 0
        counts[timed.type, timed.stage] = counts.get((timed.type, timed.stage), 0) + met
    return iter(counts.items())


def _lasting(snapshot: Snapshot) -> Iterator[Sample]:
    now = snapshot.stats.now
    return (((one.stage, one.error), max(0.0, now - one.since)) for one in snapshot.outages)


def _alerts(snapshot: Snapshot) -> Iterator[Sample]:
    """Return every possible alert, so that a cleared one goes to 0 and does not vanish."""
    standing = {(alert.code, alert.queue) for alert in snapshot.alerts}
    queues = snapshot.queues
    known = {
        (code, queue) for code in SEVERITIES for queue in (queues if code in OF_QUEUES else [""])
    }
    return (((*name,), name in standing) for name in sorted({NO_WORKERS} | known | standing))
