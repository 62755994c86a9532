"""How many submits a second are answered: `python -m bench.questions.submit`.

By one caller who awaits each answer, by a hundred at the same time who each await their own, and
by the quickest call that there is for many. No worker runs meanwhile. Making the connection is not
counted. Who is quick submits more, so that each run takes about a second.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.harness.bench import Bench, Case, Result
from bench.harness.command import ask_alone
from bench.harness.figures import Who

NAME = "submit"
CALLERS = 100
PROBED = 100
LEAST, MOST = 100, {"one": 5_000, "many": 20_000, "bulk": 50_000}
ABOUT_SECONDS = 1.0
LIMIT_SECONDS = 30.0


def ask(bench: Bench) -> None:
    asked = bench.whos("submit", "best", *(() if bench.quick else ("plain",)))
    bench.measure(
        [
            Case(
                question=NAME,
                who=who,
                case={},
                run=partial(submitted, bench, who),
                main=("bulk", "tasks/s"),
            )
            for who in asked
        ]
    )


def submitted(bench: Bench, who: Who) -> Result:
    """The rate of each way says how many the next, which is as quick or quicker, has to take."""
    rate, values = _rate(bench, who, "one", PROBED), {}
    for how, most in MOST.items():
        tasks = int(min(most, max(LEAST, rate * ABOUT_SECONDS)))
        rate = _rate(bench, who, how, tasks)
        if tasks < most and tasks / rate < ABOUT_SECONDS / 3:  # much quicker than the way before
            rate = _rate(bench, who, how, int(min(most, rate * ABOUT_SECONDS)))
        values[how] = (rate, "tasks/s")
    return Result(values=values)


def _rate(bench: Bench, who: Who, how: str, tasks: int) -> float:
    with bench.places.open(who.store) as place:
        bench.call(who, "prepare", place)
        asked: dict[str, Any] = {"how": how, "tasks": tasks, "callers": CALLERS}
        found = bench.call(who, "submit", place, seconds=LIMIT_SECONDS, **asked)
    return float(tasks / found["seconds"])


if __name__ == "__main__":
    ask_alone(NAME)
