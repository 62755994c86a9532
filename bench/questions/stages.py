"""How many stages of workflows are committed in a second: `python -m bench.questions.stages`.

Workflows of five stages that do nothing, at 1, 50 and 500 at once, and of fifty stages: the cost of
a stage must not grow with their number. Submitting and awaiting the results are part of the time,
and everything runs in one process. The fast run more workflows, so that each run takes long enough.
"""

from __future__ import annotations

from functools import partial

import msgspec

from bench.harness.bench import Bench, Case, Result
from bench.harness.command import ask_alone
from bench.harness.figures import Who

NAME = "stages"
LIMIT_SECONDS = 60.0


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    stages: int
    at_once: int
    ours: int  # workflows
    peers: int


AMOUNTS = (
    Amount(stages=5, at_once=50, ours=2000, peers=200),
    Amount(stages=5, at_once=1, ours=300, peers=50),
    Amount(stages=5, at_once=500, ours=2000, peers=500),
    Amount(stages=50, at_once=50, ours=200, peers=50),
)


def ask(bench: Bench) -> None:
    asked = bench.whos("stages", "best", *(() if bench.quick else ("plain",)))
    bench.measure(
        [
            Case(
                question=NAME,
                who=who,
                case={"stages": amount.stages, "at_once": amount.at_once},
                run=partial(staged, bench, who, amount),
                main=("rate", "stages/s"),
            )
            for amount in _amounts(bench)
            for who in asked
        ]
    )


def _amounts(bench: Bench) -> tuple[Amount, ...]:
    return AMOUNTS[:2] if bench.quick else AMOUNTS


def staged(bench: Bench, who: Who, amount: Amount) -> Result:
    workflows = amount.ours if who.is_ours else amount.peers
    with bench.places.open(who.store) as place:
        bench.call(who, "prepare", place)
        found = bench.call(
            who,
            "stages",
            place,
            seconds=LIMIT_SECONDS,
            workflows=workflows,
            stages=amount.stages,
            at_once=amount.at_once,
        )
    rate = workflows * amount.stages / found["seconds"]
    return Result(values={"rate": (rate, "stages/s")})


if __name__ == "__main__":
    ask_alone(NAME)
