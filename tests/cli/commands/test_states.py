"""The diagram is drawn from the table, and the committed one is the present one."""

import re
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from itertools import combinations, pairwise

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.domain import diagram, layouts
from holdfast.domain.plan.plan import PlanStatus
from holdfast.domain.task.state import Status
from holdfast.insight.diagrams import as_live
from holdfast.ports import Moves, Stats
from tests.support.cli.world import FINE, World
from tests.support.source_tree import ROOT

PICTURES: list[diagram.AnyPicture] = [layouts.TASKS, layouts.PLANS, layouts.TRIGGERS]
FILES = dict(zip(("states", "plan-states", "trigger-states"), PICTURES, strict=True))
EVERY_STEP = [
    (picture, before, command, after)
    for picture in PICTURES
    for before, row in picture.machine.table.items()
    for command, after in row.items()
]


@pytest.mark.parametrize(("ending", "draw"), [("svg", diagram.svg), ("mmd", diagram.mermaid)])
@pytest.mark.parametrize("name", FILES)
def test_the_committed_diagram_is_the_present_one(
    name: str, ending: str, draw: Callable[[diagram.AnyPicture], str]
) -> None:
    committed = (ROOT / "docs" / f"{name}.{ending}").read_text(encoding="utf-8")
    said = f"holdfast states --of … --format … > docs/{name}.{ending}"
    assert committed == draw(FILES[name]), said


@pytest.mark.parametrize(("picture", "before", "command", "after"), EVERY_STEP)
def test_every_step_of_the_tables_is_in_the_mermaid_diagram(
    picture: diagram.AnyPicture, before: StrEnum, command: StrEnum, after: StrEnum
) -> None:
    pattern = rf"^    {before} --> {after}: (.*, )?{command}(,.*)?$"
    assert re.search(pattern, diagram.mermaid(picture), re.MULTILINE)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.title)
def test_every_line_of_the_svg_begins_and_ends_at_its_boxes(picture: diagram.AnyPicture) -> None:
    moving = {
        (edge.before, edge.after)
        for edge in diagram.edges(picture)
        if edge.before is not edge.after
    }
    assert set(picture.routes) == moving
    assert set(picture.centres) == set(picture.machine.table)
    for (before, after), (_, points) in picture.routes.items():
        assert is_on_the_edge_of(picture.centres[before], points[0])
        assert is_on_the_edge_of(picture.centres[after], points[-1])


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.title)
def test_no_label_of_the_svg_covers_another_or_a_box(picture: diagram.AnyPicture) -> None:
    half = diagram.BOX_WIDTH // 2, diagram.BOX_HEIGHT // 2
    taken = [(status, *centre, *half) for status, centre in picture.centres.items()]
    for edge in diagram.edges(picture):
        if edge.before is edge.after:
            continue
        (x, y), _ = picture.routes[edge.before, edge.after]
        taken.append((edge.label, x, y, diagram.label_width(edge.label) // 2, 8))
    for (one, x1, y1, w1, h1), (other, x2, y2, w2, h2) in combinations(taken, 2):
        apart = abs(x1 - x2) >= w1 + w2 or abs(y1 - y2) >= h1 + h2
        assert apart, f"{one} at {x1},{y1} and {other} at {x2},{y2}"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.title)
def test_every_line_of_the_svg_runs_straight_and_stays_on_the_page(
    picture: diagram.AnyPicture,
) -> None:
    for _, points in picture.routes.values():
        for (x1, y1), (x2, y2) in pairwise(points):
            assert (x1 == x2) is not (y1 == y2)
            assert abs(x1 - x2) + abs(y1 - y2) >= 2 * diagram.CORNER
        assert all(0 < x < picture.width and 0 < y < picture.height - 60 for x, y in points)


def test_a_transition_without_a_place_cannot_be_drawn() -> None:
    routes = {**layouts.PLANS.routes}
    routes.popitem()
    with pytest.raises(KeyError):
        diagram.svg(replace(layouts.PLANS, routes=routes))


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
    for draw in (diagram.text, diagram.mermaid, diagram.svg):
        assert "7 now, stays 20s" in draw(layouts.TASKS, live)
    assert "complete (3)" in diagram.svg(layouts.TASKS, live)


def test_states_needs_a_store_only_for_live_counts(world: World) -> None:
    assert world.cli("states").stdout == diagram.text(layouts.TASKS)
    assert world.cli("states", "--format", "svg").stdout == diagram.svg(layouts.TASKS)
    assert world.cli("states", "--live").exit_code != 0
    world.work_until_rested(world.send())
    assert "1 now" in world.cli("states", "--live").stdout


def test_states_of_plans_and_triggers_are_drawn(world: World) -> None:
    assert world.cli("states", "--of", "plans").stdout == diagram.text(layouts.PLANS)
    drawn = world.cli("states", "--of", "triggers", "--format", "mermaid").stdout
    assert drawn == diagram.mermaid(layouts.TRIGGERS)
    result = world.cli("states", "--of", "triggers", "--live")
    assert result.exit_code == Exit.USAGE
    assert "not triggers" in result.stderr


def test_plans_are_counted_in_their_states(world: World) -> None:
    world.plan("up-7", {"t-1": FINE, "t-2": FINE}, max_concurrency=1)
    world.work_until_plan_rests("up-7")
    drawn = world.cli("states", "--of", "plans", "--live").stdout
    assert f"{PlanStatus.COMPLETED} (settled)  1 now" in drawn


def test_the_plan_that_halted_and_the_plan_that_ended_are_told_apart() -> None:
    lines = diagram.text(layouts.PLANS).splitlines()
    assert f"{PlanStatus.HALTED} (suspended)" in lines
    assert f"{PlanStatus.COMPLETED} (settled)" in lines
