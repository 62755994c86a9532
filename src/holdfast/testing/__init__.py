"""For the tests of those who use Holdfast, and of Holdfast itself."""

from holdfast.testing.clock import ManualClock
from holdfast.testing.context import LoneContext, context
from holdfast.testing.engine import Engine, StillBusy

__all__ = ["Engine", "LoneContext", "ManualClock", "StillBusy", "context"]
