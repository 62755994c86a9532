"""Users see no change in the API, the command line, settings, metrics, logs and stores.

Each snapshot has one fact in a line. A line that goes or comes fails until it is meant.
"""

from importlib.metadata import entry_points

import pytest

from tests.surface import snapshots, source
from tests.surface.catalogue import QUICK
from tests.surface.package_parts import fields_of_a_log_line


@pytest.mark.parametrize("name", QUICK)
def test_nothing_of_the_surface_went_or_came(name: str) -> None:
    said = snapshots.difference(name, QUICK[name]())
    assert not said, said


def test_the_fields_of_a_log_line_are_held_as_the_page_of_logs_lists_them() -> None:
    listed = ["ts", "level", "logger", "event", "task", "type", "stage", "attempt", "tenant"]
    assert fields_of_a_log_line() == [*listed, "trace", "exception"]
    held = {line.removeprefix("field ") for line in snapshots.kept("loggers") if "field" in line}
    assert held == {*fields_of_a_log_line()}


def test_every_logger_has_a_name_that_is_written_out() -> None:
    """A module that moves would take its logger's name along."""
    others = [one for one in source.loggers_named_otherwise() if "_name" not in one]
    assert not others, others


def test_the_plug_in_of_pytest_is_loaded_by_its_entry_point() -> None:
    [found] = [one for one in entry_points(group="pytest11") if one.name == "holdfast"]
    assert found.value == "holdfast.testing.plugin"
    assert hasattr(found.load(), "holdfast_engine")


def test_the_integration_with_fastapi_is_imported_under_its_name() -> None:
    from holdfast.integrations import fastapi

    assert sorted(fastapi.__all__) == ["Engine", "engine", "lifespan", "router"]
    assert all(hasattr(fastapi, name) for name in fastapi.__all__)


def test_a_difference_names_each_line_and_the_way_to_renew(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "FOLDER", tmp_path)
    snapshots.write("api", ["GET /a", "GET /b"])
    said = snapshots.difference("api", ["GET /b", "GET /c"])
    assert "- GET /a" in said
    assert "+ GET /c" in said
    assert "GET /b" not in said
    assert "make snapshots" in said
    assert snapshots.difference("api", ["GET /a", "GET /b"]) == ""
