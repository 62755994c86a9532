"""The options that several commands share."""

import pytest

from holdfast.cli.options import halt_rule
from holdfast.domain.errors import InvalidInput
from holdfast.domain.plan.plan import FailureCount, FailureRate


def test_halt_rules_as_people_write_them() -> None:
    assert halt_rule("--halt-on", "5%") == FailureRate(0.05)
    assert halt_rule("--halt-on", "3") == FailureCount(3)
    with pytest.raises(InvalidInput):
        halt_rule("--halt-on", "%")


def test_a_threshold_is_a_share_or_a_number() -> None:
    assert halt_rule("--stop-at", "20%") == FailureRate(0.2)
    assert halt_rule("--stop-at", "5") == FailureCount(5)
