"""Helpers for the tests of applications and stores."""

from holdfast.testing.clock import ManualClock
from holdfast.testing.context import LoneContext, context
from holdfast.testing.engine import Engine, StillBusy

__all__ = ["Engine", "LoneContext", "ManualClock", "StillBusy", "context"]
