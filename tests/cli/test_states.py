"""The diagram is drawn from the table, and the committed one is the present one."""

import re

import pytest

from holdfast.cli.states import as_live
from holdfast.domain import diagram
from holdfast.domain.state import TABLE, Command, Status
from holdfast.ports import Moves, Stats
from tests.cli.world import World
from tests.source_tree import ROOT

EVERY_STEP = [
    (before, command, after) for before, row in TABLE.items() for command, after in row.items()
]


@pytest.mark.parametrize(
    ("name", "draw"), [("states.svg", diagram.svg), ("states.mmd", diagram.mermaid)]
)
def test_the_committed_diagram_is_the_present_one(name: str, draw: object) -> None:
    assert callable(draw)
    committed = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert committed == draw(), f"holdfast states --format … > docs/{name}"


@pytest.mark.parametrize(("before", "command", "after"), EVERY_STEP)
def test_every_step_of_the_table_is_in_the_mermaid_diagram(
    before: Status, command: Command, after: Status
) -> None:
    pattern = rf"^    {before} --> {after}: (.*, )?{command}(,.*)?$"
    assert re.search(pattern, diagram.mermaid(), re.MULTILINE)


def test_every_line_of_the_svg_begins_and_ends_at_its_boxes() -> None:
    moving = {
        (edge.before, edge.after) for edge in diagram.edges() if edge.before is not edge.after
    }
    assert set(diagram.ROUTES) == moving
    for (before, after), (_, points) in diagram.ROUTES.items():
        assert is_on_the_edge_of(diagram.CENTRES[before], points[0])
        assert is_on_the_edge_of(diagram.CENTRES[after], points[-1])


def is_on_the_edge_of(centre: tuple[int, int], point: tuple[int, int]) -> bool:
    across, down = abs(centre[0] - point[0]), abs(centre[1] - point[1])
    half_width, half_height = diagram.BOX_WIDTH // 2, diagram.BOX_HEIGHT // 2
    return (across == half_width and down <= half_height) or (
        down == half_height and across <= half_width
    )


def test_the_running_system_is_on_the_diagram() -> None:
    live = as_live(
        Stats(
            by_status={Status.RUNNING: 7},
            by_queue={},
            moves=(
                Moves(before=Status.RUNNING, after=Status.COMPLETED, count=3, dwell_seconds=30.0),
                Moves(before=Status.RUNNING, after=Status.FAILED, count=1, dwell_seconds=50.0),
            ),
            refused={},
            heads={},
            now=0.0,
        )
    )
    for drawn in (diagram.text(live), diagram.mermaid(live), diagram.svg(live)):
        assert "7 now, stays 20s" in drawn
    assert "complete (3)" in diagram.svg(live)


def test_states_needs_a_store_only_for_live_counts(world: World) -> None:
    assert world.cli("states").stdout == diagram.text()
    assert world.cli("states", "--format", "svg").stdout == diagram.svg()
    assert world.cli("states", "--live").exit_code != 0
    world.work_until_rested(world.send())
    assert "1 now" in world.cli("states", "--live").stdout
