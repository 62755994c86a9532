"""The engine: an app that declares, submits and controls tasks."""

from holdfast.engine.core import Holdfast

__all__ = ["Holdfast"]
