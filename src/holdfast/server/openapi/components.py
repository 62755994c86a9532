"""The names of the schemas in the OpenAPI document, where a class has another name in Python.

Clients are generated from these names, so they do not follow a class that is renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES: Mapping[str, str] = {  # of a class → in the document
    "AmendRequest": "Amending",
    "ApplyResult": "Applied",
    "BulkAction": "BulkAsking",
    "BulkActionRequest": "BulkAsk",
    "DrainRequest": "Draining",
    "EnvelopeContextView": "EnvelopeContext",
    "FailureKind": "Kind",
    "PlanAction": "PlanAsking",
    "PlanActionRequest": "PlanAsk",
    "TaskAction": "Asking",
    "TaskActionRequest": "Ask",
    "TenantConflict": "Conflict",
    "TenantsQuery": "TenantsAsked",
    "TriggerAction": "TriggerAsking",
    "TriggerActionRequest": "TriggerAsk",
    "UpdateAccepted": "Heard",
}

_PLACE = "#/components/schemas/"


def rename(document: dict[str, Any], names: Mapping[str, str] = NAMES) -> None:
    """Give the schemas of a document their names, wherever it refers to them."""
    schemas = document["components"]["schemas"]
    for of_class, name in names.items():
        schema = schemas.pop(of_class)
        if name in schemas:
            raise ValueError(f"two schemas of the OpenAPI document have the name {name}")
        schemas[name] = schema | ({"title": name} if schema.get("title") == of_class else {})
    _refer(document, {f"{_PLACE}{of_class}": f"{_PLACE}{name}" for of_class, name in names.items()})


def _refer(value: Any, places: Mapping[str, str]) -> None:
    """Replace the references in a part of the document."""
    if isinstance(value, dict):
        if "$ref" in value:
            value["$ref"] = places.get(value["$ref"], value["$ref"])
        for inner in value.values():
            _refer(inner, places)
    elif isinstance(value, list):
        for inner in value:
            _refer(inner, places)
