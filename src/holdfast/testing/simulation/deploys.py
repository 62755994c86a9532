"""The stages of the simulated workflows in the code of each deploy."""

from __future__ import annotations

CHANGING = frozenset({"flow.3", "flow.4"})  # whose stages a deploy may change
DEPLOYS = 6


def stage_names(workflow: str, stages: int, deploy: int) -> tuple[str, ...]:
    """Return the stages of a workflow in the code of one deploy; 0 is the one of most processes."""
    first, *rest = names = [f"s{number}" for number in range(stages)]
    if workflow not in CHANGING:
        return tuple(names)
    deploys = (
        names,
        [*names, "appended"],
        [first, "inserted", *rest],
        ["prepended", *names],
        [*names[:-1], "renamed"],
        [first, *rest[1:]],
    )
    return tuple(deploys[deploy])
