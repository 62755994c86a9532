"""Types that Holdfast hands out and that a program only names in annotations and comparisons."""

from holdfast.domain.bulk import BulkCommand
from holdfast.domain.plan.plan import MemberState, PlanCommand
from holdfast.engine.bulk.bulks import BulkInfo, BulkPreview

__all__ = ["BulkCommand", "BulkInfo", "BulkPreview", "MemberState", "PlanCommand"]
