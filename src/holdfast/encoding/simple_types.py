"""Declared types that always come back from JSON as they went in, so that little is compared."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import inspect

_SCALARS = frozenset(("int", "str", "float", "bool", "none"))
_KEYS_OF_A_FIELD = frozenset(("type", "schema", "metadata", "name", "init", "kw_only", "frozen"))
_HARMLESS_SETTINGS = frozenset(("title", "strict", "extra_fields_behavior"))


class Trust(Enum):
    """A share of a value that must be compared after it was read back."""

    NOTHING = "nothing"
    FIELDS = "fields"  # of an instance, whose fields nobody validates; not of plain JSON for it
    ALL = "all"


def trust_in(schema: Mapping[str, Any]) -> Trust:
    """Return the trust in a declared type, by the core schema that pydantic has made of it."""
    if _is_plain(schema):
        return Trust.NOTHING
    return Trust.FIELDS if _is_plain_class(schema) else Trust.ALL


def trust_in_structs(declared: Any) -> Trust:
    """Return the trust in a type that msgspec reads."""
    found = inspect.type_info(declared)
    if not isinstance(found, inspect.StructType) or hasattr(found.cls, "__post_init__"):
        return Trust.ALL
    fields = (_is_plain_for_structs(field.type) for field in found.fields)
    return Trust.FIELDS if all(fields) else Trust.ALL


def holds_any(declared: Any) -> bool:
    """Return whether a field of these Structs has no type."""
    return "AnyType" in repr(inspect.type_info(declared))


def has_floats(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return schema.get("type") == "float" or any(map(has_floats, schema.values()))
    return isinstance(schema, list | tuple) and any(map(has_floats, schema))


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema has only scalars, lists and objects, without user code."""
    if "serialization" in schema or schema.get("on_error", "raise") != "raise":
        return False
    kind = schema["type"]
    if kind in _SCALARS:
        return True
    if kind in ("nullable", "default"):
        return _is_plain(schema["schema"])
    if kind == "list":
        return "items_schema" in schema and _is_plain(schema["items_schema"])
    if kind == "dict":
        keys, values = schema.get("keys_schema"), schema.get("values_schema")
        return keys == {"type": "str"} and values is not None and _is_plain(values)
    return False


def _is_plain_class(schema: Mapping[str, Any]) -> bool:
    """Return whether a class has plain fields, written and read under their own names."""
    own_code = ("serialization", "custom_init", "root_model", "post_init")
    if any(schema.get(name) for name in own_code) or not _is_harmless(schema.get("config", {})):
        return False
    inner = schema.get("schema", {})
    match schema["type"], inner.get("type"):
        case "model", "model-fields":
            cls, fields = schema["cls"], list(inner["fields"].values())
            if cls.__private_attributes__ or cls.__pydantic_root_model__:
                return False
        case "dataclass", "dataclass-args":
            fields = inner["fields"]
        case _:
            return False
    if "serialization" in inner or inner.get("extra_behavior") == "allow":
        return False
    return all(map(_is_plain_field, fields))


def _is_plain_field(field: Mapping[str, Any]) -> bool:
    return (
        field.keys() <= _KEYS_OF_A_FIELD and field.get("init", True) and _is_plain(field["schema"])
    )


def _is_harmless(config: Mapping[str, Any]) -> bool:
    return config.keys() <= _HARMLESS_SETTINGS and config.get("extra_fields_behavior") != "allow"


def _is_plain_for_structs(found: inspect.Type) -> bool:
    match found:
        case (
            inspect.IntType()
            | inspect.StrType()
            | inspect.FloatType()
            | inspect.BoolType()
            | inspect.NoneType()
        ):
            return True
        case inspect.ListType(item_type=item):
            return _is_plain_for_structs(item)
        case inspect.DictType(key_type=inspect.StrType(), value_type=item):
            return _is_plain_for_structs(item)
        case inspect.UnionType(types=types):
            given = [one for one in types if not isinstance(one, inspect.NoneType)]
            return len(given) == 1 and _is_plain_for_structs(given[0])
    return False
