"""The report: `latest.json` with everything, `latest.md` for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import machine
from bench.harness.bench import Bench
from bench.report import ratios
from bench.report.figures import CLIENT_CPU, SERVER_CPU, Book, Figure
from bench.report.tables import grid, number, table

TITLES = {
    "pairs": "Pairs",
    "drain": "Drain",
    "submit": "Submit",
    "latency": "Latency on an idle system",
    "stages": "Stages of workflows",
    "growth": "Growth",
    "memory": "Memory",
    "recovery": "Recovery after kill -9",
    "triggers": "Triggers",
    "plans": "Plans",
    "pages": "Pages of long lists",
    "service": "The service",
    "capacity": "Capacity",
}
CPU_NAMES = {CLIENT_CPU: "client", SERVER_CPU: "server"}


def build(bench: Bench, absent: dict[str, str], *, seconds: float, full: bool) -> dict[str, Any]:
    described = machine.describe_run(bench)
    return {
        **described,
        "full": full,  # all questions and peers, and often enough
        "seconds": round(seconds, 1),
        "engines": {engine.name: engine.to_dict() for engine in (bench.ours, *bench.peers)},
        "absent": absent,
        "questions": {figure.question: _measurement_facts(described) for figure in bench.book},
        "ratios": ratios.by_name(ratios.ratios(bench.book)),
        "figures": [figure.to_dict() for figure in bench.book],
    }


def _measurement_facts(described: dict[str, Any]) -> dict[str, Any]:
    """Return date and machine; a question may be measured alone later (`report_merge.py`)."""
    kept = ("commit", "runs", "machine", "versions")
    return {"measured_at": described["taken_at"], **{name: described[name] for name in kept}}


def write(report: dict[str, Any], folder: Path, name: str = "latest") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    (folder / f"{name}.md").write_text("\n".join(markdown(report)) + "\n")


def remove(folder: Path, name: str) -> None:
    for kind in ("json", "md"):
        (folder / f"{name}.{kind}").unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def book_of(report: dict[str, Any]) -> Book:
    return Book([msgspec.convert(one, Figure, strict=False) for one in report["figures"]])


def markdown(report: dict[str, Any]) -> list[str]:
    book = book_of(report)
    asked = [name for name in TITLES if any(figure.question == name for figure in book)]
    sections = [
        line
        for name in asked
        for line in (
            "",
            f"## {TITLES[name]}",
            "",
            *table(book, name),
            "",
            format_measured_at(report, name),
        )
    ]
    return [
        "# Benchmark",
        "",
        *facts(report),
        "",
        "Each figure is the median of its runs; the smallest and the largest follow in brackets.",
        "",
        "## Goals",
        "",
        *goal_table(report),
        *sections,
        "",
        "## Settings, and what they guarantee",
        "",
        *settings_table(report),
        *_absent(report),
    ]


def facts(report: dict[str, Any]) -> list[str]:
    place, versions, servers = report["machine"], report["versions"], report["servers"]
    kind = "a full run" if report["full"] else "a quick run" if report["quick"] else "part of a run"
    postgres = "no PostgreSQL"
    if versions["postgresql"]:
        postgres = f"PostgreSQL {versions['postgresql']} ({servers['postgresql']})"
    text = (
        f"The figures come from {kind} of {report['seconds'] / 60:.0f} minutes "
        f"on {report['taken_at'][:10]}, with {_runs(report)} of each case. "
        f"The machine has {place['system']} and {place['cores']} cores ({place['processor']}). "
        f"Versions: Python {versions['python']}, Redis {versions['redis']} ({servers['redis']}), "
        f"{postgres}, SQLite {versions['sqlite']}."
    )
    return [text]


def format_measured_at(report: dict[str, Any], question: str) -> str:
    """Return date and machine of a question where they differ from those of the whole run."""
    said = report.get("questions", {}).get(question, {})
    parts = [f"Measured on {said.get('measured_at', report['taken_at'])[:10]}"]
    if said.get("commit"):
        parts.append(f"at commit {said['commit']}")
    if (place := said.get("machine", report["machine"])) != report["machine"]:
        parts.append(f"on {place['system']}, {place['cores']} cores ({place['processor']})")
    versions = said.get("versions", {})
    other = {name: v for name, v in versions.items() if v and v != report["versions"].get(name)}
    parts += [f"with {name} {version}" for name, version in other.items()]
    return f"{', '.join(parts)}."


def _runs(report: dict[str, Any]) -> str:
    """Return the number of runs, which is smaller than the default where time was short."""
    counts = [one["runs"] for one in report["figures"] if one["runs"]] or [0]
    asked = f"{report['runs']} by default"
    if min(counts) == max(counts):
        return f"{counts[0]} runs ({asked})"
    return f"{min(counts)} to {max(counts)} runs ({asked}; each table says how many)"


def ratio_table(report: dict[str, Any]) -> list[str]:
    """Return what was compared with what, without the goals."""
    rows = [
        [
            f"`{name}`",
            _value(ratio),
            ratio["decided_by"],
            _side(ratio["ours"]),
            _side(ratio["other"]),
            ratio["note"],
        ]
        for name, ratio in report["ratios"].items()
    ]
    return grid(["ratio", "value", "decided by", "ours", "compared with", "note"], rows)


def goal_table(report: dict[str, Any]) -> list[str]:
    """Return each ratio with its goal, and whether the run reached it."""
    rows = []
    for name, ratio in report["ratios"].items():
        then = f", then {ratio['then']:g}" if "then" in ratio else ""
        rows.append(
            [
                f"`{name}`",
                _value(ratio),
                "–" if ratio["goal"] is None else f"≥ {ratio['goal']:g}{then}",
                {True: "yes", False: "no", None: "–"}[ratio["met"]],
                ratio["decided_by"],
                _side(ratio["ours"]),
                _side(ratio["other"]),
                ratio["note"],
            ]
        )
    head = ["ratio", "value", "goal", "met", "decided by", "ours", "compared with", "note"]
    return grid(head, rows)


def _value(ratio: dict[str, Any]) -> str:
    return "–" if ratio["value"] is None else f"{ratio['value']:.2f}"


def _side(side: dict[str, Any] | None) -> str:
    if side is None:
        return "–"
    said = f"{side['who']}: {number(side['value'])} {side['unit']}"
    cpu = side.get("cpu", {})
    used = [f"{number(cpu[key])} µs {name}" for key, name in CPU_NAMES.items() if key in cpu]
    return f"{said}, {' + '.join(used)}" if used else said


def settings_table(report: dict[str, Any]) -> list[str]:
    rows = [
        [name, engine["version"], kind, text]
        for name, engine in report["engines"].items()
        for kind, text in engine["settings"].items()
    ]
    return grid(["engine", "version", "settings", "what is set, and what it guarantees"], rows)


def _absent(report: dict[str, Any]) -> list[str]:
    if not report["absent"]:
        return []
    rows = [[name, reason] for name, reason in report["absent"].items()]
    return ["", "## Who could not take part", "", *grid(["engine", "reason"], rows)]
