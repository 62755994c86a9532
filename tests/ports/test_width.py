"""The port stays narrow: a new store is some forty verbs in five parts."""

import pytest

from verify.interception import PORTS, verbs_of

MOST_IN_A_PART = 14
MOST_IN_ALL = 40


@pytest.mark.parametrize("part", PORTS)
def test_a_part_has_few_verbs(part: str) -> None:
    assert 0 < len(verbs_of(part)) <= MOST_IN_A_PART, verbs_of(part)


def test_the_parts_together_have_few_verbs() -> None:
    assert sum(len(verbs_of(part)) for part in PORTS) <= MOST_IN_ALL
