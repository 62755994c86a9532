"""An example of each answer, for the OpenAPI document: made from its schema, so that none is
forgotten and none grows old."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.server.openapi.example_values import ANYWHERE, IN, OF_STATUS

JSON = "application/json"
UNTOLD = "…"  # a value that nobody has given an example of; a test finds it

Schema = dict[str, Any]


def fill(document: Schema) -> None:
    """Every answer that went well, and has none of its own."""
    made = Examples(document["components"]["schemas"])
    for status, content in answers(document):
        if "example" not in content and content.get("schema"):
            content["example"] = made.of_answer(status, content["schema"])


def answers(document: Schema) -> Iterator[tuple[str, Schema]]:
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status < "300" and JSON in response.get("content", {}):
                    yield status, response["content"][JSON]


class Examples:
    def __init__(self, schemas: Schema) -> None:
        self._schemas = schemas

    def of_answer(self, status: str, schema: Schema) -> Any:
        model = self._resolve(schema).get("title", "")
        return self._make(schema) | OF_STATUS.get((model, status), {})

    def _resolve(self, schema: Schema) -> Schema:
        found: Schema = schema
        if "$ref" in schema:
            found = self._schemas[schema["$ref"].rsplit("/", 1)[1]]
        return found

    def _make(self, schema: Schema, name: str = "") -> Any:
        """Return an example of a schema; ``name`` is that of the field."""
        if "examples" in schema:
            return schema["examples"][0]
        schema = self._resolve(schema)
        if "properties" in schema:
            return self._object(schema)
        if "const" in schema:
            return schema["const"]
        if "anyOf" in schema:
            return self._either(schema["anyOf"], name)
        if "enum" in schema:
            return ANYWHERE[name] if ANYWHERE.get(name) in schema["enum"] else schema["enum"][0]
        return self._plain(schema, name)

    def _object(self, schema: Schema) -> Schema:
        told = IN.get(schema.get("title", ""), {})
        fields = schema["properties"].items()
        return {name: told[name] if name in told else self._make(of, name) for name, of in fields}

    def _either(self, options: list[Schema], name: str) -> Any:
        """Return an example of what is there rather than null, unless null is the example."""
        if name in ANYWHERE and ANYWHERE[name] is None:
            return None
        return self._make(next(one for one in options if one.get("type") != "null"), name)

    def _plain(self, schema: Schema, name: str) -> Any:
        kind = schema.get("type")
        if kind == "array" and "properties" in self._resolve(schema["items"]):
            return [self._make(schema["items"])]
        if name in ANYWHERE:
            return ANYWHERE[name]
        if kind == "array":
            return [self._make(schema["items"])]
        return {"integer": 0, "number": 0.0, "boolean": False}.get(str(kind), UNTOLD)
