import sys
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.domain.errors import InvalidSetting
from holdfast.engine.store_url import store_from_url


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///%3Amemory%3A"])
def test_a_database_in_memory_is_refused_and_makes_no_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSetting, match="write memory://"):
        store_from_url(url, SystemClock(), "executor")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["postgres://me:s3cret@host/db", "redis+sentinel://me:s3cret@host", "ftp://[me:s3cret@x"]
)
def test_a_url_that_is_refused_is_shown_without_its_password(url: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        store_from_url(url, SystemClock(), "executor")
    assert "s3cret" not in str(refused.value)


def test_a_missing_driver_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.stores.redis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'holdfast-engine\[redis\]'"):
        store_from_url("redis://localhost", SystemClock(), "executor")
