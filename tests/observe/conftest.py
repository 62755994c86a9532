import pytest

from tests.support.observe.promtool import PROMTOOL


@pytest.fixture
def promtool() -> str:
    assert PROMTOOL is not None
    return PROMTOOL
