"""The OpenAPI document: whole, sound, and with an example of all that is sent and answered."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis

from holdfast.server import Service, bare_api
from holdfast.server.openapi import components
from holdfast.server.openapi.examples import JSON, UNTOLD
from tests.server.auth.test_roles import OWN_WAYS, TABLE
from tests.server.conftest import declared


def made() -> dict[str, Any]:
    return bare_api(Service(declared()), None).openapi()


DOCUMENT = made()


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


OPERATIONS = dict(operations())
every = pytest.mark.parametrize("name", OPERATIONS)


def test_the_document_is_sound() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()


async def test_the_document_is_served_to_everybody() -> None:
    api = bare_api(Service(declared()), None)
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        answer = await client.get("/openapi.json")
    assert answer.json() == DOCUMENT


@every
def test_each_operation_says_what_it_does(name: str) -> None:
    operation = OPERATIONS[name]
    description = " ".join(operation["description"].split())
    assert description.startswith(f"{operation['summary']}.")
    assert description.endswith(".")
    assert len(operation["summary"].split()) >= 3
    assert all(len(sentence.split()) < 30 for sentence in description.split(". "))
    assert operation["tags"]
    assert operation["operationId"]


def test_no_two_operations_have_one_id() -> None:
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)


def test_each_operation_says_which_role_it_needs() -> None:
    told = {name: operation["x-holdfast-role"] for name, operation in OPERATIONS.items()}
    assert told == {f"{method} {path}": role for method, path, role in TABLE}


@every
def test_what_needs_a_token_says_so(name: str) -> None:
    operation = OPERATIONS[name]
    own_ways: dict[str, Any] = dict(zip(OWN_WAYS, ([], [{"telegram": []}]), strict=True))
    assert operation["security"] == own_ways.get(operation["x-holdfast-role"], [{"token": []}])
    assert all(one in DOCUMENT["components"]["securitySchemes"] for one in ("token", "telegram"))


@every
def test_each_operation_has_its_problems_as_problem_documents(name: str) -> None:
    operation = OPERATIONS[name]
    problems = {int(status) for status in operation["responses"] if status >= "400"}
    if operation["x-holdfast-role"] not in OWN_WAYS:
        assert problems >= {401, 403, 422, 429, 503}
    if "{" in name and "/queues/" not in name:
        assert 404 in problems
    for status in problems - ({503} if name == "GET /readyz" else set()):
        content = operation["responses"][str(status)]["content"]
        assert list(content) == ["application/problem+json"]
        schema = content["application/problem+json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Problem"}


@pytest.mark.parametrize("name", [name for name in OPERATIONS if "requestBody" in OPERATIONS[name]])
def test_each_body_has_an_example_that_fits_it(name: str) -> None:
    [(kind, content)] = OPERATIONS[name]["requestBody"]["content"].items()
    assert kind == "application/json"
    refs = [content["schema"], *content["schema"].get("anyOf", [])]
    [schema] = [resolved(one["$ref"]) for one in refs if "$ref" in one]
    for example in schema["examples"]:
        whole = schema | {"components": DOCUMENT["components"]}
        jsonschema_rs.validator_for(whole).validate(example)


@every
def test_each_good_answer_has_a_whole_example_that_fits_it(name: str) -> None:
    for status, answer in OPERATIONS[name]["responses"].items():
        content = answer.get("content", {}).get(JSON, {})
        if status < "300" and "schema" in content:
            whole = content["schema"] | {"components": DOCUMENT["components"]}
            jsonschema_rs.validator_for(whole).validate(content["example"])
            assert set(content["example"]) >= required(content["schema"])
            assert UNTOLD not in leaves(content["example"])


def test_examples_are_those_of_a_service_that_runs() -> None:
    """Not of one model after the other: the parts fit together."""
    told = OPERATIONS["GET /api/tasks/{task_id}"]["responses"]["200"]["content"][JSON]["example"]
    assert told["error"]["stage"] == told["stage"] in told["stageNames"]
    assert told["events"][0]["taskId"] == told["taskId"]
    waited = OPERATIONS["POST /api/workflows/apply"]["responses"]
    told_status = {one: waited[one]["content"][JSON]["example"]["status"] for one in ("200", "202")}
    assert told_status == {"200": "completed", "202": "processing"}


def required(schema: dict[str, Any]) -> set[str]:
    return set(resolved(schema["$ref"]).get("required", ()))


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


@every
def test_each_parameter_says_what_it_is(name: str) -> None:
    told = OPERATIONS[name].get("parameters", [])
    assert [one["name"] for one in told if not one.get("description")] == []


def resolved(ref: str) -> dict[str, Any]:
    found: Any = DOCUMENT
    for part in ref.removeprefix("#/").split("/"):
        found = found[part]
    assert isinstance(found, dict)
    return found


@every
def test_nothing_beside_the_known_fields_is_taken(name: str) -> None:
    body = OPERATIONS[name].get("requestBody")
    if body is not None and "telegram" not in name:  # what it sends is Telegram's, and grows
        schema = body["content"]["application/json"]["schema"]
        refs = [one["$ref"] for one in [schema, *schema.get("anyOf", [])] if "$ref" in one]
        assert all(resolved(ref)["additionalProperties"] is False for ref in refs)


def test_every_text_that_is_sent_is_bounded() -> None:
    loose = [
        (name, field)
        for name, schema in DOCUMENT["components"]["schemas"].items()
        if schema.get("additionalProperties") is False and name in sent()
        for field, told in schema["properties"].items()
        for one in [told, *told.get("anyOf", [])]
        if one.get("type") == "string" and not {"maxLength", "pattern", "enum"} & one.keys()
    ]
    assert loose == []


def sent() -> set[str]:
    """The schemas of bodies."""
    bodies = [o["requestBody"]["content"] for o in OPERATIONS.values() if "requestBody" in o]
    schemas = [body["application/json"]["schema"] for body in bodies]
    refs = [one["$ref"] for s in schemas for one in [s, *s.get("anyOf", [])] if "$ref" in one]
    return {ref.rsplit("/", 1)[1] for ref in refs}


def test_a_schema_keeps_its_name_when_its_class_is_renamed() -> None:
    given = made()
    before = copy.deepcopy(given)
    components.rename(given, {"TaskPage": "TasksShown"})
    schemas = given["components"]["schemas"]
    assert schemas["TasksShown"]["title"] == "TasksShown"
    written = json.dumps(before).replace('schemas/TaskPage"', 'schemas/TasksShown"')
    assert given["paths"] == json.loads(written)["paths"] != before["paths"]
    assert 'schemas/TaskPage"' not in json.dumps(given)
    assert schemas.keys() == before["components"]["schemas"].keys() - {"TaskPage"} | {"TasksShown"}


def test_no_two_schemas_get_one_name() -> None:
    with pytest.raises(ValueError, match="have the name TaskView"):
        components.rename(made(), {"PlanView": "TaskView"})


@every
def test_each_reason_in_an_example_is_the_example_of_the_field(name: str) -> None:
    for content in OPERATIONS[name].get("requestBody", {}).get("content", {}).values():
        refs = [content["schema"], *content["schema"].get("anyOf", [])]
        [schema] = [resolved(one["$ref"]) for one in refs if "$ref" in one]
        reasons = [body["reason"] for body in schema["examples"] if "reason" in body]
        if reasons:
            assert schema["properties"]["reason"]["examples"] == reasons


def test_a_held_tenant_shows_which_task_still_runs() -> None:
    shown = DOCUMENT["components"]["schemas"]["HoldState"]["properties"]["waitingFor"]
    assert shown["examples"] == ["019c1a4e-9d00-7c31-8a52-6f0b7c9d1e24"]


def test_renamed_operations_keep_their_ids() -> None:
    shown = {
        name: OPERATIONS[name]["operationId"]
        for name in ("GET /internal/doctor", "POST /internal/doctor/fix")
    }
    assert shown == {
        "GET /internal/doctor": "look_internal_doctor_get",
        "POST /internal/doctor/fix": "mend_internal_doctor_fix_post",
    }
