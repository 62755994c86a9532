"""Facts in lines of text: where a JSON value or a JSON schema has which key, of which type."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

WORDING = {"description", "example", "examples", "summary", "title"}  # not part of the surface
TYPES = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}


def lines(facts: Iterable[str]) -> list[str]:
    """Return the facts sorted, each once."""
    return sorted(set(facts))


def key_paths(value: Any, at: str = "") -> Iterator[str]:
    """Yield ``tasks[].id string`` and the like for every value in ``value``."""
    match value:
        case Mapping():
            yield f"{at or '.'} object"
            for name, inner in value.items():
                yield from key_paths(inner, f"{at}.{name}" if at else str(name))
        case list():
            yield f"{at or '.'} array"
            for inner in value:
                yield from key_paths(inner, f"{at}[]")
        case _:
            yield f"{at or '.'} {TYPES[type(value)]}"


def schema_facts(schema: Mapping[str, Any], at: str) -> Iterator[str]:
    """Yield a line for every keyword of a JSON schema that is not mere wording."""
    for word, value in schema.items():
        match word, value:
            case "properties", Mapping():
                for name, inner in value.items():
                    yield f"{at}.{name}"
                    yield from schema_facts(inner, f"{at}.{name}")
            case "required", list():
                yield from (f"{at}.{name} required" for name in value)
            case (("items" | "additionalProperties" | "not"), Mapping()):
                yield from schema_facts(value, f"{at}{'[]' if word == 'items' else f' {word}'}")
            case (("anyOf" | "oneOf" | "allOf" | "prefixItems"), list()):
                for inner in value:
                    yield from schema_facts(inner, f"{at} {word}")
            case (("$defs" | "mapping"), Mapping()):
                for name, inner in value.items():
                    is_schema = isinstance(inner, Mapping)
                    yield from schema_facts(inner, name) if is_schema else [f"{at} {name}={inner}"]
            case "discriminator", Mapping():
                yield from schema_facts(value, f"{at} discriminator")
            case "enum", list():
                yield from (f"{at} enum {json.dumps(one)}" for one in value)
            case _ if word not in WORDING:
                yield f"{at} {word}={json.dumps(value, sort_keys=True)}"
