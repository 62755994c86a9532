"""Cron by brute force, minute after minute of a year, and expressions to try it on."""

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

DAY = 24 * 60
EPOCH = date(1970, 1, 1)
LEAP_YEAR = 2028

# Each with a trap: the shift's hour, its length, its direction over midnight, a day left out.
ZONE_YEARS = [
    ("UTC", 2028),
    ("Asia/Shanghai", 2026),
    ("America/New_York", 2026),
    ("Europe/Berlin", 2026),
    ("Africa/Casablanca", 2026),  # back for Ramadan, forth after it
    ("Antarctica/Troll", 2026),  # by two hours
    ("Australia/Lord_Howe", 2026),  # by half an hour
    ("Africa/Cairo", 2026),  # forth at midnight, back to the day before
    ("America/Sao_Paulo", 2018),
    ("America/St_Johns", 2010),  # at one minute past midnight
    ("Pacific/Apia", 2011),  # no 30 December
]


class Field(NamedTuple):
    text: str
    values: frozenset[int]


class Expression(NamedTuple):
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    def __repr__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self)

    @property
    def by_real_time(self) -> bool:
        return self.minute.text[0] == "*" or self.hour.text[0] == "*"

    def minutes_of_a_day(self) -> frozenset[int]:
        return frozenset(h * 60 + m for h in self.hour.values for m in self.minute.values)

    def has_day(self, day: date) -> bool:
        dom = day.day in self.day.values
        dow = bool({day.isoweekday(), day.isoweekday() % 7} & self.weekday.values)
        matches = (dom and dow) if self.needs_both_days else (dom or dow)
        return day.month in self.month.values and matches

    @property
    def needs_both_days(self) -> bool:
        return self.day.text[0] == "*" or self.weekday.text[0] == "*"

    @property
    def can_fire(self) -> bool:
        """False when none of its months has one of its days, as for 30 February."""
        longest = max(monthrange(LEAP_YEAR, month)[1] for month in self.month.values)
        return not self.needs_both_days or min(self.day.values) <= longest


def expressions() -> st.SearchStrategy[Expression]:
    """Expressions that a trigger may have: one that can never fire is refused."""
    return drawn_expressions().filter(lambda expression: expression.can_fire)


def drawn_expressions() -> st.SearchStrategy[Expression]:
    return st.builds(
        Expression,
        minute=fields(0, 59),
        hour=fields(0, 23) | numbered(0, 4, of=23),  # the hours at which clocks are set
        day=star(1, 31) | star(1, 31) | fields(1, 31),
        month=star(1, 12) | star(1, 12) | fields(1, 12),
        weekday=star(0, 7) | star(0, 7) | fields(0, 7),
    )


def expression_on(day: Field, month: Field, weekday: Field | None = None) -> Expression:
    """Build an expression that fires at midnight of some days."""
    every = Field("*", span(0, 7))
    return Expression(number(0), number(0), day, month, weekday or every)


def star(low: int, high: int) -> st.SearchStrategy[Field]:
    return st.just(Field("*", span(low, high)))


def number(value: int) -> Field:
    return Field(f"{value}", frozenset({value}))


@cache
def fields(low: int, high: int) -> st.SearchStrategy[Field]:
    steps = st.integers(1, high)
    stepped = steps.map(lambda step: Field(f"*/{step}", span(low, high, step)))
    return star(low, high) | stepped | numbered(low, high, of=high)


@cache
def numbered(low: int, high: int, *, of: int) -> st.SearchStrategy[Field]:
    """Numbers, lists, ranges, ranges with a step, and starts with a step, as in ``5/15``."""
    numbers, steps = st.integers(low, high), st.integers(1, high)
    ends = st.tuples(st.integers(low, high - 1), st.integers(1, high)).map(
        lambda pair: (pair[0], min(high, pair[0] + pair[1]))
    )
    one = numbers.map(number)
    several = st.lists(numbers, min_size=2, max_size=4).map(
        lambda many: Field(",".join(map(str, many)), frozenset(many))
    )
    ranged = ends.map(lambda e: Field(f"{e[0]}-{e[1]}", span(e[0], e[1])))
    strided = st.builds(lambda e, n: Field(f"{e[0]}-{e[1]}/{n}", span(e[0], e[1], n)), ends, steps)
    started = st.builds(lambda n, step: Field(f"{n}/{step}", span(n, of, step)), numbers, steps)
    return one | several | ranged | strided | started


def span(low: int, high: int, step: int = 1) -> frozenset[int]:
    return frozenset(range(low, high + 1, step))


def year_of(year: int) -> tuple[float, float]:
    """The first and the last second of a year, UTC."""
    begin, end = (datetime(y, 1, 1, tzinfo=UTC).timestamp() for y in (year, year + 1))
    return begin, end - 1


@cache
def wall_of(tz: str, year: int) -> list[int]:
    """Return what a wall clock shows at each minute of a year in UTC, in minutes since 1970."""
    zone, (begin, end) = ZoneInfo(tz), year_of(year)

    def ahead(second: float) -> int:
        shift = datetime.fromtimestamp(second, zone).utcoffset() or timedelta()
        return int(shift.total_seconds()) // 60

    shown: list[int] = []
    for hour in range(int(begin), int(end), 3600):
        minutes, before = range(hour, hour + 3600, 60), ahead(hour)
        if before == ahead(minutes[-1]):
            shown += [second // 60 + before for second in minutes]
        else:
            shown += [second // 60 + ahead(second) for second in minutes]
    return shown


@cache
def shifts_of(tz: str, year: int) -> list[float]:
    """The first moments after the clock was set."""
    begin = year_of(year)[0]
    both = enumerate(pairwise(wall_of(tz, year)), start=1)
    return [begin + 60 * n for n, (one, two) in both if two != one + 1]


def fire_times(expression: Expression, tz: str, year: int) -> list[float]:
    """Return all fire times within a year of UTC, by the stated policy."""
    begin = year_of(year)[0]
    return [begin + 60 * n for n in _firing(expression, wall_of(tz, year))]


def _firing(expression: Expression, wall: list[int]) -> Iterator[int]:
    minutes, days = expression.minutes_of_a_day(), _days(expression, wall)

    def matches(shown: int) -> bool:
        return shown % DAY in minutes and shown // DAY in days

    if expression.by_real_time:
        yield from (n for n, shown in enumerate(wall) if matches(shown))
        return
    reached = wall[0] - 1
    for n, shown in enumerate(wall):
        if shown == reached + 1:
            hit = matches(shown)
        else:  # a gap brings several at once, an overlap none
            hit = any(matches(new) for new in range(reached + 1, shown + 1))
        if hit:
            yield n
        reached = max(reached, shown)


def _days(expression: Expression, wall: list[int]) -> set[int]:
    numbers = range(min(wall) // DAY, max(wall) // DAY + 1)
    return {n for n in numbers if expression.has_day(EPOCH + timedelta(days=n))}
