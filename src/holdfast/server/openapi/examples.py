"""An example of each answer, for the OpenAPI document: made from its schema, so that none is
forgotten and none grows old. The views declare the examples of their fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

JSON = "application/json"
UNTOLD = "…"  # a value that nobody has given an example of; a test finds it
_PLAIN = {"integer": 0, "number": 0.0, "boolean": False}

Schema = dict[str, Any]


def fill(document: Schema) -> None:
    """Give an example to every good answer that has none of its own."""
    for content in _good_answers(document):
        if "example" not in content and content.get("schema"):
            content["example"] = _make(content["schema"], document["components"]["schemas"])


def _good_answers(document: Schema) -> Iterator[Schema]:
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status < "300" and JSON in response.get("content", {}):
                    yield response["content"][JSON]


def _make(schema: Schema, schemas: Schema) -> Any:
    """Return an example of a schema: of a value rather than null, if it may be either."""
    for given in ("examples", "enum"):
        if given in schema:
            return schema[given][0]
    if "$ref" in schema:
        return _make(schemas[schema["$ref"].rsplit("/", 1)[1]], schemas)
    if "properties" in schema:
        return {name: _make(of, schemas) for name, of in schema["properties"].items()}
    if "anyOf" in schema:
        return _make(next(one for one in schema["anyOf"] if one.get("type") != "null"), schemas)
    if schema.get("type") == "array":
        return [_make(schema["items"], schemas)]
    return schema.get("const", _PLAIN.get(str(schema.get("type")), UNTOLD))
