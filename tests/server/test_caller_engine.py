"""The engine as one caller uses it: a request makes only the parts that its route needs."""

from holdfast.server import Service
from holdfast.server.auth.access import Caller
from holdfast.server.auth.tokens import Role
from tests.server.conftest import declared

PARTS = ("control", "plans", "schedule", "bulks", "checkpoints", "tenants", "queues")


def test_a_part_is_made_when_it_is_first_used_and_kept() -> None:
    engine = Service(declared()).acting_as(Caller(actor="api:ann", origin="", role=Role.OPERATOR))
    assert not vars(engine).keys() & set(PARTS)
    control = engine.control
    assert engine.control is control
    assert vars(engine).keys() & set(PARTS) == {"control"}
    assert all(getattr(engine, part) is getattr(engine, part) for part in PARTS)
