"""What Prometheus reads, taken apart by the client's own parser."""

import subprocess
import time
import timeit
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.observe import metrics as process_metrics
from holdfast.observe.families import FAMILIES, STORED
from holdfast.observe.metrics import Metrics
from holdfast.observe.snapshot import Alert, Severity, Snapshot
from holdfast.ports import BUCKETS, Moves, OutageGroup, Switch, Timings
from tests.support.observe.promtool import needs_promtool
from tests.support.observe.snapshots import snapshot, thrown, waiting, worker
from tests.support.task_records import NOW

DONE = Timings(
    type="mail",
    stage="send",
    outcome="done",
    counts=(1, 2, *(0,) * (len(BUCKETS) - 2), 4),
    total_seconds=9.5,
)


def read(metrics: Metrics, facts: Snapshot | None) -> dict[tuple[str, ...], float]:
    """Each sample: its name and its labels (name=value, in order) → its value."""
    told = metrics.exposition(facts).decode()
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(told)
        for sample in family.samples
    }


def seen(**fields: Any) -> dict[tuple[str, ...], float]:
    return read(Metrics(), snapshot(**fields))


def full() -> Snapshot:
    alert = Alert(
        code="backlog",
        severity=Severity.TICKET,
        queue="mail",
        message="11 wait",
        value=11,
        threshold=10,
        since=NOW,
    )
    of = {
        "workers": (worker(), worker("w-2"), worker("w-3", live=False)),
        "switches": (
            thrown(Switch.DRAIN, "w-2"),
            thrown(Switch.INTAKE, "mail"),
            thrown(Switch.CLAIMING, "other"),
        ),
        "alerts": (alert,),
        "durable": False,
        "degraded": True,
        "findings": {"I2": 3},
        "outages": (OutageGroup(fingerprint="f", error="Away", stage="store", since=NOW - 7),),
    }
    moves = (
        _moves(Status.PENDING, Status.RUNNING, 5, 10.0, queue="mail", type="send"),
        _moves(Status.RETRYING, Status.PENDING, 2, 1.0, queue="mail", type="send"),
        _moves(Status.PENDING, Status.RUNNING, 7, 3.5),
    )
    return snapshot(
        snapshot_of=of,
        **waiting("mail", 11, age_seconds=42.5, leased=2),
        by_status={Status.PENDING: 11, Status.FAILED: 2},
        moves=moves,
        refused={f"{Status.RUNNING} retry": 4},
        timings=(DONE,),
        checkpoints=6,
        locks=1,
    )


def _moves(before: Status, after: Status, count: int, dwell: float, **of: str) -> Moves:
    return Moves(before=before, after=after, count=count, dwell_seconds=dwell, **of)


def test_what_the_store_counted_is_told() -> None:
    told = read(Metrics(), full())
    expected = {
        ("holdfast_up",): 1,
        ("holdfast_tasks_total", "queue=mail", "status=RUNNING", "type=send"): 5,
        ("holdfast_tasks_total", "queue=mail", "status=PENDING", "type=send"): 2,
        ("holdfast_tasks_total", "queue=", "status=RUNNING", "type="): 7,
        ("holdfast_transitions_total", "from=PENDING", "to=RUNNING"): 12,
        ("holdfast_dwell_seconds_total", "status=PENDING"): 13.5,
        ("holdfast_dwells_total", "status=PENDING"): 12,
        ("holdfast_refused_total", "command=retry", "status=RUNNING"): 4,
        ("holdfast_tasks", "status=PENDING"): 11,
        ("holdfast_tasks", "status=COMPLETED"): 0,
        ("holdfast_queue_depth", "place=ready", "queue=mail"): 11,
        ("holdfast_queue_depth", "place=line", "queue=mail"): 0,
        ("holdfast_queue_oldest_age_seconds", "queue=mail"): 42.5,
        ("holdfast_suspended",): 2,
        ("holdfast_leases",): 2,
        ("holdfast_checkpoints",): 6,
        ("holdfast_tenant_locks",): 1,
        ("holdfast_workers", "state=live"): 1,
        ("holdfast_workers", "state=draining"): 1,
        ("holdfast_workers", "state=lost"): 1,
        ("holdfast_slots",): 20,
        ("holdfast_slots_used",): 2,
        ("holdfast_durable",): 0,
        ("holdfast_degraded",): 1,
        ("holdfast_intake_paused", "queue=mail"): 1,
        ("holdfast_intake_paused", "queue=other"): 0,
        ("holdfast_claiming_paused", "queue=mail"): 0,
        ("holdfast_claiming_paused", "queue=other"): 1,
        ("holdfast_alerts", "alert=backlog", "queue=mail"): 1,
        ("holdfast_alerts", "alert=backlog", "queue=other"): 0,
        ("holdfast_alerts", "alert=not-durable", "queue="): 0,
        ("holdfast_doctor_findings", "invariant=I2"): 3,
        ("holdfast_doctor_findings", "invariant=I11"): 0,
    }
    assert {name: told.get(name) for name in expected} == expected


def test_the_spans_of_stage_times_are_added_up() -> None:
    told, about = read(Metrics(), full()), ("outcome=done", "stage=send", "type=mail")
    spans = {
        name[1]: value
        for name, value in told.items()
        if name[0].endswith("stage_duration_seconds_bucket")
    }
    assert (spans["le=0.005"], spans["le=0.025"], spans["le=7200.0"], spans["le=+Inf"]) == (
        1,
        3,
        3,
        7,
    )
    assert told["holdfast_stage_duration_seconds_sum", *about] == 9.5
    assert told["holdfast_stage_duration_seconds_count", *about] == 7


def test_while_the_store_is_away_the_process_tells_of_itself_only() -> None:
    metrics = Metrics()
    metrics.http("GET", "/livez", 200, 0.001)
    told = read(metrics, None)
    assert told["holdfast_up",] == 0
    assert told["holdfast_http_requests_total", "method=GET", "route=/livez", "status=200"] == 1
    assert not {name for name, *_ in told} & set(STORED)


def test_findings_are_told_once_somebody_has_looked() -> None:
    assert not any(name == "holdfast_doctor_findings" for name, *_ in seen())


def test_a_label_cannot_break_out() -> None:
    bad = 'a"b\\c\nd'
    told = seen(moves=(_moves(Status.PENDING, Status.RUNNING, 1, 0.0, queue=bad, type="x"),))
    assert told["holdfast_tasks_total", f"queue={bad}", "status=RUNNING", "type=x"] == 1


def test_requests_are_counted_and_timed() -> None:
    metrics = Metrics()
    for status, took in ((200, 0.004), (200, 0.3), (404, 60.0)):
        metrics.http("GET", "/api/tasks/{id}", status, took)
    told, about = read(metrics, None), ("method=GET", "route=/api/tasks/{id}")
    assert told["holdfast_http_requests_total", *about, "status=200"] == 2
    assert told["holdfast_http_requests_total", *about, "status=404"] == 1
    assert told["holdfast_http_request_duration_seconds_count", *about] == 3
    assert told["holdfast_http_request_duration_seconds_sum", *about] == pytest.approx(60.304)
    assert told["holdfast_http_request_duration_seconds_bucket", "le=0.005", *about] == 1


def test_a_caller_cannot_make_metrics_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "LIMIT", 50)
    metrics = Metrics()
    for number in range(200):
        metrics.http(f"M{number}", "/x", 405, 0.1)
        metrics.http("GET", f"/{number}", 200, 0.1)
    told = read(metrics, None)
    counted = {name: n for name, n in told.items() if name[0] == "holdfast_http_requests_total"}
    assert len(counted) <= 53
    assert sum(counted.values()) == 400
    assert not any("method=M0" in name for name in counted)


def test_refused_tokens_and_open_streams_are_told() -> None:
    metrics = Metrics()
    metrics.auth_failed("unknown")
    metrics.sse_streams.inc()
    told = read(metrics, None)
    assert told["holdfast_auth_failures_total", "kind=unknown"] == 1
    assert told["holdfast_sse_streams",] == 1


def test_the_worst_lag_is_forgotten_after_a_minute() -> None:
    now = [100.0]
    metrics = Metrics(steady=lambda: now[0])
    metrics.event_lag(7.0)
    metrics.event_lag(0.5)
    assert metrics.worst_event_lag() == 7.0
    now[0] += 31
    metrics.event_lag(2.0)
    assert read(metrics, None)["holdfast_event_lag_seconds",] == 7.0
    now[0] += 31
    assert metrics.worst_event_lag() == 2.0
    now[0] += 61
    assert metrics.worst_event_lag() == 0.0


def test_two_of_them_do_not_know_of_each_other() -> None:
    one, other = Metrics(), Metrics()
    one.auth_failed("unknown")
    assert ("holdfast_auth_failures_total", "kind=unknown") not in read(other, None)


def test_every_metric_has_help_a_kind_and_the_labels_it_declares() -> None:
    metrics = Metrics()
    metrics.http("GET", "/livez", 200, 0.001)
    metrics.auth_failed("unknown")
    metrics.count_connections(lambda: 1, ["process"])
    metrics.connection_refused("process")
    families = text_string_to_metric_families(metrics.exposition(full()).decode())
    found = {}
    for family in families:
        if not family.name.startswith("process_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for one in family.samples for label in one.labels} - {"le"}
            found[name] = (family.type, labels)
            assert family.documentation == FAMILIES[name].help
    assert found == {name: (one.kind, set(one.labels)) for name, one in FAMILIES.items()}


def test_names_follow_the_conventions() -> None:
    for name, family in FAMILIES.items():
        assert name.startswith("holdfast_")
        assert name.endswith("_total") == (family.kind == "counter"), name
        assert not {"id", "task", "tenant", "key"} & set(family.labels), name


@needs_promtool
def test_promtool_finds_nothing_to_say(promtool: str) -> None:
    metrics = Metrics()
    metrics.http("GET", "/livez", 200, 0.001)
    metrics.auth_failed("unknown")
    told = metrics.exposition(full())
    command = [promtool, "check", "metrics"]
    done = subprocess.run(command, input=told, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_fifty_workflows_of_five_stages_are_told_in_no_time() -> None:
    timings = tuple(
        Timings(
            type=f"type-{t}", stage=f"s-{s}", outcome="done", counts=DONE.counts, total_seconds=1.5
        )
        for t in range(50)
        for s in range(5)
    )
    places = {f"q-{n}": {Place.READY: n} for n in range(10)}
    metrics, facts = Metrics(), snapshot(timings=timings, by_queue=places)
    lines = metrics.exposition(facts).count(b"\n")
    spent = least_seconds(lambda: metrics.exposition(facts))
    plain = least_seconds(lambda: "\n".join(f'a{{b="{n}",c="{n}"}} {n:.1f}' for n in range(lines)))
    assert spent < 10 * plain, "about as long as it takes to write so many lines, some 2 ms"


def least_seconds(call: Callable[[], object]) -> float:
    """Of the processor."""
    return min(timeit.repeat(call, timer=time.process_time, number=1, repeat=20))
