from pathlib import Path

import pytest

from holdfast.app.opening import store_from_url
from holdfast.clock import SystemClock
from holdfast.domain.errors import InvalidSetting


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///%3Amemory%3A"])
def test_a_database_in_memory_is_refused_and_makes_no_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSetting, match="write memory://"):
        store_from_url(url, SystemClock(), "executor")
    assert list(tmp_path.iterdir()) == []
