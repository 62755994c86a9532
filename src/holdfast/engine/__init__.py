"""The app: the one place that knows both sides."""

from holdfast.engine.core import Holdfast

__all__ = ["Holdfast"]
