"""Settings: given, from the environment, from a file; wrong ones are refused by name (P9)."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast import settings as settings_module
from holdfast.errors import InvalidSetting
from holdfast.settings import load


def test_the_defaults_are_those_of_the_documents() -> None:
    settings = load()
    assert settings.store == "sqlite:///holdfast.db"
    assert settings.namespace == "executor"
    assert (settings.lease, settings.stage_timeout) == (30, 9000)
    assert (settings.checkpoint_ttl, settings.keep) == (7 * 86_400, 30 * 86_400)
    assert settings.tenant_lock == 9000
    assert settings.fallback == "none"


def test_the_environment_is_read_with_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "STORE": "memory://",
        "LEASE": "45s",
        "KEEP": "2h30m",
        "CHECKPOINT_TTL": "604800",
        "SLOTS": "7",
        "QUEUES": "fast, slow",
        "NAMESPACE": "staging",
    }.items():
        monkeypatch.setenv(f"HOLDFAST_{name}", value)
    settings = Holdfast().settings
    assert (settings.store, settings.namespace) == ("memory://", "staging")
    assert (settings.lease, settings.keep, settings.checkpoint_ttl) == (45, 9000, 604_800)
    assert (settings.slots, settings.queue_names) == (7, ("fast", "slow"))


def test_a_file_is_read_and_the_environment_stands_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('store = "memory://"\nlease = "1m"\nkeep = 60\nslots = 3\n')
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    monkeypatch.setenv("HOLDFAST_SLOTS", "4")
    settings = load(keep="1h")
    assert (settings.store, settings.lease) == ("memory://", 60)
    assert (settings.slots, settings.keep) == (4, 3600)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE", "soon"),
        ("LEASE", "-1s"),
        ("LEASE", "0"),
        ("LEASE", "2h"),
        ("LEASE", "nan"),
        ("SLOTS", "0"),
        ("SLOTS", "many"),
        ("QUEUES", ""),
        ("QUEUES", "a,,b"),
        ("QUEUES", "a b"),
        ("NAMESPACE", "{x}"),
        ("NAMESPACE", ""),
        ("FALLBACK", "disk"),
        ("STAGE_TIMEOUT", "0s"),
        ("PAYLOAD_LIMIT", "-1"),
        ("KEEP", "1w"),
        ("CRASH_LIMIT", "0"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_the_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"HOLDFAST_{name}", value)
    with pytest.raises(InvalidSetting) as refused:
        Holdfast()
    assert refused.value.name == f"HOLDFAST_{name}"
    assert f"HOLDFAST_{name}" in str(refused.value)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="HOLDFAST_LEESE"):
        Holdfast(leese="30s")


@pytest.mark.parametrize(
    "text", ["lease = [", "leese = 3", 'lease = "soon"', "slots = -1", "lease = true"]
)
def test_a_wrong_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    with pytest.raises(InvalidSetting, match="HOLDFAST_"):
        Holdfast()


def test_a_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG", "nowhere.toml")
    with pytest.raises(InvalidSetting, match="HOLDFAST_CONFIG"):
        Holdfast()


@pytest.mark.parametrize(
    "url", ["redis", "mysql://u:secret@host/x", "sqlite://", "sqlite://host/x", ""]
)
async def test_a_store_that_nobody_knows_is_refused_without_telling_its_secret(url: Any) -> None:
    with pytest.raises(InvalidSetting, match="HOLDFAST_STORE") as refused:
        async with Holdfast(url):
            pass
    assert "secret" not in str(refused.value)


def test_a_wrong_value_is_told_in_our_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_NAMESPACE", "{x}")
    with pytest.raises(InvalidSetting) as refused:
        load()
    assert "Value error" not in str(refused.value)
    assert "namespace" in refused.value.reason


def test_an_unknown_key_of_the_file_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("leese = 3\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    with pytest.raises(InvalidSetting, match="leese") as refused:
        load()
    assert (refused.value.name, refused.value.value) == ("HOLDFAST_CONFIG", str(file))


def test_the_backlog_of_queues_is_written_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_BACKLOG", "default=1000, mail = 5000,*=10000")
    assert load().backlog == {"default": 1000, "mail": 5000, "*": 10_000}


@pytest.mark.parametrize(
    "value", ["abc", "1000", "default=", "=5", "default=many", "a=" + "9" * 50]
)
def test_a_backlog_of_another_form_is_refused_with_the_form(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HOLDFAST_BACKLOG", value)
    with pytest.raises(InvalidSetting, match=r"default=1000,\*=10000") as caught:
        load()
    assert "HOLDFAST_BACKLOG" in str(caught.value)


@pytest.mark.parametrize("value", ["mail=0", "mail=-5"])
def test_a_backlog_is_above_zero(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOLDFAST_BACKLOG", value)
    with pytest.raises(InvalidSetting, match="not above zero"):
        load()


def test_a_lock_that_would_not_outlive_its_lease_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"HOLDFAST_TENANT_LOCK.*60 s at least"):
        load(lease="30s", tenant_lock="59s")


@pytest.fixture
def _nothing_named_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "_misspelt", set())
    monkeypatch.setenv(settings_module.NAMED_BEFORE, "")  # and taken back at the end


@pytest.mark.usefixtures("_nothing_named_yet")
def test_a_misspelt_variable_is_named_once_with_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOLDFAST_STROE", "memory://")
    monkeypatch.setenv("HOLDFAST_ZZZZ", "1")
    for _ in range(3):
        load()
    assert [one.getMessage() for one in caplog.records] == [
        "HOLDFAST_STROE is set, but there is no such setting; did you mean HOLDFAST_STORE?",
        "HOLDFAST_ZZZZ is set, but there is no such setting",
    ]


@pytest.mark.usefixtures("_nothing_named_yet")
def test_a_process_does_not_repeat_what_its_parent_has_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOLDFAST_STROE", "memory://")
    load()
    assert len(caplog.records) == 1
    monkeypatch.setenv("HOLDFAST_LAESE", "30s")
    program = "from holdfast.settings import load; load(); load()"
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert child.stderr.splitlines() == [
        "HOLDFAST_LAESE is set, but there is no such setting; did you mean HOLDFAST_LEASE?"
    ]


def test_a_misspelt_name_in_a_file_or_a_call_says_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting, match="no such setting; did you mean lease"):
        Holdfast(leese="30s")
    file = tmp_path / "holdfast.toml"
    file.write_text('namespcae = "prod"\n')
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    with pytest.raises(InvalidSetting, match=r"no setting 'namespcae'; did you mean namespace\?"):
        load()
