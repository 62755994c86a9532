"""The files for Prometheus fit the metrics, the alerts and the documentation."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # no stubs among the tools

from holdfast.domain.task.placement import Place
from holdfast.observe.alerts import SEVERITIES, Thresholds
from holdfast.observe.families import FAMILIES, HISTOGRAM
from holdfast.observe.snapshot import Severity
from holdfast.runtime.worker.meter import OUTCOMES
from tests.support.observe.promtool import needs_promtool
from tests.support.source_tree import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RULES, TESTS = FOLDER / "holdfast.rules.yml", FOLDER / "holdfast.rules.test.yml"
DOCUMENT = ROOT / "docs" / "metrics.md"


@cache
def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in loaded(RULES)["groups"] for rule in group["rules"]}


def samples() -> set[str]:
    """The names that a rule may ask for."""
    plain = {name for name, family in FAMILIES.items() if family.kind != HISTOGRAM}
    return plain | {
        f"{name}_{part}"
        for name, family in FAMILIES.items()
        if family.kind == HISTOGRAM
        for part in ("bucket", "count", "sum")
    }


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the document."""
    _, _, below = DOCUMENT.read_text().partition(f"## {heading}\n")
    lines = [line for line in below.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell: str) -> str:
    return cell.strip("`")


@pytest.mark.parametrize("name", rules())
def test_a_rule_asks_only_for_metrics_and_labels_that_exist(name: str) -> None:
    asked = set(re.findall(r"holdfast_\w+", rules()[name]["expr"]))
    assert asked
    assert asked <= samples()
    known = {label for family in FAMILIES.values() for label in family.labels} | {"job", "instance"}
    for grouped in re.findall(r"by \(([^)]*)\)", rules()[name]["expr"]):
        assert {label.strip() for label in grouped.split(",")} <= known


@pytest.mark.parametrize("name", rules())
def test_a_rule_says_how_urgent_it_is_and_what_there_is_to_do(name: str) -> None:
    rule = rules()[name]
    assert rule["labels"]["severity"] in set(Severity)
    assert {"summary", "description"} <= set(rule["annotations"])


@pytest.mark.parametrize("name", rules())
def test_no_rule_counts_a_store_twice(name: str) -> None:
    """What every service tells alike is never summed over the services."""
    own = ("holdfast_auth_failures_total",)
    pattern = r"sum by \(([^)]*)\)\s*\((?:\w+\()?(holdfast_\w+)"
    for summed in re.finditer(pattern, rules()[name]["expr"]):
        labels, metric = summed.groups()
        assert metric in own or "instance" in labels


@pytest.mark.parametrize("name", rules())
def test_no_rule_waits_for_a_series_to_be_born(name: str) -> None:
    """`increase` and `rate` look at a sum, to which a new label adds, or at series that a service
    has from its start."""
    always = ("holdfast_auth_failures_total",)
    for metric in re.findall(r"(?:increase|rate)\((holdfast_\w+)", rules()[name]["expr"]):
        assert metric in always


@pytest.mark.parametrize("name", rules())
def test_each_rule_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    expected = {
        bool(check["exp_alerts"])
        for test in loaded(TESTS)["tests"]
        for check in test["alert_rule_test"]
        if check["alertname"] == name
    }
    assert expected == {True, False}


@pytest.mark.parametrize(
    ("name", "threshold"),
    [
        ("HoldfastCheckpoints", Thresholds().checkpoints),
        ("HoldfastTenantLocks", Thresholds().tenant_locks),
        ("HoldfastEventLag", Thresholds().event_lag_seconds),
        ("HoldfastOldestAge", Thresholds().oldest_seconds),
        ("HoldfastOutage", Thresholds().outage_seconds),
    ],
)
def test_the_rules_and_the_service_judge_by_the_same_thresholds(
    name: str, threshold: float
) -> None:
    [found] = re.findall(r"> ([\d.]+)", rules()[name]["expr"])
    assert float(found) == threshold


def test_a_rule_that_leans_on_an_alert_names_one_that_exists() -> None:
    named = set(re.findall(r'alert="([^"]+)"', RULES.read_text()))
    assert named
    assert named <= set(SEVERITIES)


def test_the_example_scrapes_with_a_token_from_a_file_and_loads_the_rules() -> None:
    example = loaded(FOLDER / "prometheus.example.yml")
    [scrape] = example["scrape_configs"]
    assert scrape["metrics_path"] == "/metrics"
    assert "credentials_file" in scrape["authorization"]
    assert example["rule_files"] == [RULES.name]
    assert loaded(TESTS)["rule_files"] == [RULES.name]


def test_the_document_lists_every_metric_as_it_is() -> None:
    listed = {
        code(name): (kind, tuple(code(label) for label in labels.split(", ") if label), says)
        for heading in ("From the store", "Of the process")
        for name, kind, labels, says in rows(heading)
    }
    assert listed == {
        name: (family.kind, family.labels, family.help) for name, family in FAMILIES.items()
    }


def test_the_document_lists_every_alert_with_its_severity() -> None:
    listed = {code(name): severity for name, severity, _ in rows("Alerts of the service")}
    assert listed == {name: severity.value for name, severity in SEVERITIES.items()}


def test_the_document_lists_every_rule_with_its_severity() -> None:
    listed = {code(name): severity for name, severity, _ in rows("Rules for Prometheus")}
    assert listed == {name: rule["labels"]["severity"] for name, rule in rules().items()}


def test_the_document_names_every_outcome_and_place() -> None:
    said = DOCUMENT.read_text()
    for name in (*OUTCOMES, *(place.value for place in Place if place is not Place.SETTLED)):
        assert f"`{name}`" in said


@needs_promtool
@pytest.mark.parametrize(
    "command",
    [("check", "rules", RULES.name), ("test", "rules", TESTS.name)],
    ids=["check", "test"],
)
def test_promtool_accepts_the_rules_and_their_tests_pass(
    command: tuple[str, ...], promtool: str
) -> None:
    done = subprocess.run([promtool, *command], cwd=FOLDER, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert b"SUCCESS" in done.stdout


@needs_promtool
def test_promtool_accepts_the_example(promtool: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    (tmp_path / RULES.name).write_text(RULES.read_text())
    example = (FOLDER / "prometheus.example.yml").read_text()
    config = tmp_path / "prometheus.yml"
    config.write_text(re.sub(r"credentials_file: \S+", f"credentials_file: {token}", example))
    command = [promtool, "check", "config", str(config)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
