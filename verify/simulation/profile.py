"""The profile that a seed draws: how big the world is, and how bad."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from verify.faults import Rates

MANY_TENANTS_EVERY = 4  # of so many seeds, one has many tenants
KINDS = ("tasks", "tasks", "tasks", "tasks", "triggers", "plans")  # of so many seeds, one each


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    tenants: int
    submits: int
    submit_seconds: float  # the first part of the run, in which all are sent
    chaos_seconds: float  # then everything bad ends
    workers: int
    slots: int
    lease_seconds: float
    drain_seconds: float
    checkpoint_ttl_seconds: float
    unknown_type_seconds: float
    known: float  # how probable it is that a worker knows the rare types
    queue_limit: int
    rates: Rates
    fate_every_seconds: float  # one that often
    fates: tuple[str, ...]
    operator_every_seconds: float
    trouble: float  # how probable it is that a stage goes wrong
    slow: float  # that it takes long
    kills: float  # that a stage kills its process
    repeats: float  # that a submit repeats a key
    deploys: float = 0.0  # that a process has the stages of another deploy
    kind: str = "tasks"
    triggers: int = 0  # that persons make, beside those in the code
    plans: int = 0
    person_every_seconds: float = 2.0  # asks something of a trigger or a plan
    hold_every_seconds: float = 0.0  # a person holds a tenant that often; 0: never
    away: tuple[tuple[float, float], ...] = ()  # when what stages need does not answer
    outage_seconds: float = 86_400.0


def draw(seed: int, tenants: str | None = None) -> Profile:
    profile = replace(
        _draw_base(seed, tenants), deploys=_deploys(seed), hold_every_seconds=_holds(seed)
    )
    profile = _with_outages(profile, random.Random(f"away/{seed}"))
    chance = random.Random(f"kind/{seed}")
    match KINDS[seed % len(KINDS)]:
        case "triggers":
            return _with_triggers(profile, chance)
        case "plans":
            return _with_plans(profile, chance)
    return profile


def _deploys(seed: int) -> float:
    """Draw deploys from a chance of their own, so that they do not change the other draws."""
    return random.Random(f"deploys/{seed}").choice((0.0, 0.0, 0.6))


def _holds(seed: int) -> float:
    """Draw holds from a chance of their own, as for deploys."""
    return random.Random(f"holds/{seed}").choice((0.0, 0.0, 0.0, 0.0, 2.0, 6.0))


def _with_outages(profile: Profile, chance: random.Random) -> Profile:
    """Add outages to every other world; some rows of them are longer than is waited."""
    if chance.random() < 0.5:
        return profile
    begins = sorted(chance.uniform(0, 25) for _ in range(chance.randint(1, 3)))
    return replace(
        profile,
        away=tuple((begin, begin + chance.choice((3.0, 8.0, 20.0))) for begin in begins),
        outage_seconds=chance.choice((6.0, 86_400.0, 86_400.0)),
    )


def _with_triggers(profile: Profile, chance: random.Random) -> Profile:
    return replace(
        profile,
        kind="triggers",
        tenants=chance.randint(2, 5),
        submits=chance.randint(3, 8),
        submit_seconds=chance.uniform(5, 20),
        chaos_seconds=chance.uniform(40, 80),
        workers=chance.randint(3, 4),
        slots=chance.choice((2, 5, 8)),
        triggers=chance.randint(4, 7),
        person_every_seconds=chance.choice((1.0, 3.0, 10.0)),
        fates=(*profile.fates, "reset", "jump"),
        operator_every_seconds=chance.choice((2.0, 8.0, 30.0)),
    )


def _with_plans(profile: Profile, chance: random.Random) -> Profile:
    return replace(
        profile,
        kind="plans",
        tenants=chance.choice((5, 5, 8, 12, 20, 40)),
        submits=chance.randint(10, 30),
        submit_seconds=chance.uniform(5, 30),
        chaos_seconds=chance.uniform(40, 80),
        workers=chance.randint(3, 4),
        slots=chance.choice((2, 5, 8)),
        queue_limit=max(profile.queue_limit, 100),
        plans=chance.choice((1, 2, 3, 3)),
        rates=replace(profile.rates, commit_seconds=chance.choice((0.0, 0.25, 0.5))),
        person_every_seconds=chance.choice((3.0, 10.0, 30.0)),
        operator_every_seconds=chance.choice((2.0, 8.0, 30.0)),
        trouble=chance.choice((0.0, 0.2, 0.5, 0.8)),
        slow=chance.choice((0.1, 0.5)),
    )


def _draw_base(seed: int, tenants: str | None) -> Profile:
    chance = random.Random(f"profile/{seed}")
    many = tenants == "many" or (tenants is None and seed % MANY_TENANTS_EVERY == 3)
    lease = chance.choice((3.0, 4.0, 6.0, 10.0)) if not many else 10.0
    good_line = chance.random() < 0.3

    def sometimes(most: float) -> float:
        """Swarm testing: a fault that is absent lets others go further."""
        return 0.0 if good_line else chance.choice((0.0, most / 4, most)) * chance.random()

    rates = Rates(
        lost_request=sometimes(0.10),
        lost_reply=sometimes(0.10),
        late=sometimes(0.06),
        twice=sometimes(0.10),
        slow=sometimes(0.05),
        crash_before=sometimes(0.004),
        crash_after=sometimes(0.004),
        lost_signal=sometimes(0.3),
        latency_seconds=chance.choice((0.002, 0.02, 0.08)),
        commit_seconds=chance.choice((0.0, 0.0, 0.25)),
        slow_seconds=chance.choice((1.0, lease, 2 * lease)),
        give_up_seconds=chance.choice((0.2, 1.0, lease / 2)),
    )
    kinds = ("crash", "stop", "stop", "outage", "drain", "drain", "jump", "hang")
    fates = [name for name in kinds if chance.random() < 0.7]
    return Profile(
        tenants=chance.randint(100, 120) if many else chance.randint(2, 5),
        submits=chance.randint(105, 125) if many else chance.randint(12, 30),
        submit_seconds=chance.uniform(5, 20),
        chaos_seconds=chance.uniform(20, 35) if many else chance.uniform(30, 70),
        workers=chance.randint(2, 3),
        slots=chance.choice((8, 30)) if many else chance.choice((1, 2, 5)),
        lease_seconds=lease,
        drain_seconds=chance.choice((0.0, 0.0, 1.0, 5.0)),
        checkpoint_ttl_seconds=chance.choice((20.0, 3600.0, 7 * 86_400.0)),
        unknown_type_seconds=chance.choice((12.0, 600.0)),
        known=chance.choice((0.0, 0.6, 0.6)),
        queue_limit=max(chance.choice((8, 1_000_000, 1_000_000)), 200 if many else 0),
        rates=rates,
        fate_every_seconds=chance.choice((2.0, 5.0, 15.0)),
        fates=tuple(fates or ["crash"]),
        operator_every_seconds=chance.choice((0.5, 2.0, 8.0)),
        trouble=chance.choice((0.0, 0.1, 0.35)),
        slow=chance.choice((0.05, 0.3)),
        kills=chance.choice((0.0, 0.0, 0.07)),
        repeats=chance.choice((0.1, 0.4)),
    )
