"""The stages of the simulated workflows in the code of each deploy."""

from __future__ import annotations

CHANGING = frozenset({"flow.3", "flow.4"})  # whose stages a deploy may change
RESTARTING = frozenset({"flow.4", "flow.5", "flow.open"})  # where their checkpoint is no good
DEPLOYS = 6
LOSING = CHANGING | {"flow.5", "flow.6", "flow.open"}  # whose first stage may lose its undo
LOST_UNDO = (1, 2, 4, 5)  # deploys in which it has none any more


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


def has_undo(workflow: str, stage: str, deploy: int) -> bool:
    """Return whether the code of one deploy has an undo for the stage: some have lost it."""
    if workflow in LOSING and stage == "s0" and deploy in LOST_UNDO:
        return False
    return stage != "s3"
