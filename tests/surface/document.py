"""The OpenAPI document in lines: paths, methods, parameters, bodies, answers and schemas."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.surface import package_parts
from tests.surface.facts import lines, schema_facts

SCHEMAS = "#/components/schemas/"


def api() -> list[str]:
    """Return what the API takes and answers."""
    document = package_parts.openapi()
    facts = [f"openapi {document['openapi']}", f"title {document['info']['title']}"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            facts += _operation(f"{method.upper()} {path}", operation)
    for name, scheme in document["components"]["securitySchemes"].items():
        facts += schema_facts(scheme, f"security {name}")
    return lines(fact.replace(SCHEMAS, "") for fact in facts)


def schemas() -> list[str]:
    """Return the schemas that the operations of the API refer to, key by key."""
    found = package_parts.openapi()["components"]["schemas"]
    facts = [f"{name} titled {schema.get('title')}" for name, schema in found.items()]
    facts += [fact for name, schema in found.items() for fact in schema_facts(schema, name)]
    return lines(fact.replace(SCHEMAS, "") for fact in facts)


def _operation(at: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"{at} operationId {operation['operationId']}"
    yield from (f"{at} tag {tag}" for tag in operation["tags"])
    yield from (f"{at} security {name}" for one in operation.get("security", ()) for name in one)
    yield from (f"{at} {word}={operation[word]}" for word in operation if word.startswith("x-"))
    for given in operation.get("parameters", ()):
        parameter = f"{at} {given['in']} {given['name']}"
        yield f"{parameter}{' required' if given.get('required') else ''}"
        yield from schema_facts(given["schema"], parameter)
    if body := operation.get("requestBody"):
        yield f"{at} body{' required' if body.get('required') else ''}"
        yield from _content(f"{at} body", body)
    for status, answer in operation["responses"].items():
        yield f"{at} {status}"
        yield from _content(f"{at} {status}", answer)
        yield from (f"{at} {status} header {name}" for name in answer.get("headers", ()))


def _content(at: str, holder: Mapping[str, Any]) -> Iterator[str]:
    for media_type, content in holder.get("content", {}).items():
        yield f"{at} {media_type}"
        yield from schema_facts(content.get("schema", {}), f"{at} {media_type}")
