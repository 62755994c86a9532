"""The app: the one place that knows both sides."""

from holdfast.app.core import Holdfast

__all__ = ["Holdfast"]
