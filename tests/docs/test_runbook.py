"""The runbook has an entry for all that a person on call may meet, and what it says can be done."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml  # type: ignore[import-untyped]  # no stubs among the tools
from typer.exceptions import TyperException

from holdfast.cli.exit_codes import Exit
from holdfast.domain.errors import HoldfastError
from holdfast.observe.alerts import SEVERITIES
from holdfast.observe.families import FAMILIES
from holdfast.server import Service, bare_api
from holdfast.server.http import problems
from holdfast.settings import BESIDE, PREFIX, Settings
from tests.server.conftest import declared
from tests.support.docs import runbook_source as source
from tests.support.docs.runbook_pages import (
    FENCED,
    FOLDER,
    START,
    Entry,
    Request,
    anchors,
    commands,
    entries,
    links,
    pages,
    parse,
    requests,
    slug,
    spans,
    words_of,
)
from tests.support.source_tree import ROOT, text_of

CODES = ("codes-input", "codes-refused", "codes-store", "codes-running", "codes-service")
BOOK = {
    "alerts": ("alerts",),
    "parked": ("parked",),
    "failures": ("failures",),
    "doctor": ("doctor",),
    "codes": CODES,
}
ALL = [entry for names in BOOK.values() for entry in entries(*names)]
PARTS = (["Means", "See", "Do"], ["Means", "See", "Do", "Ignore"], ["Means", "See", "Do", "Never"])
LEASE_LOST = 70  # the exit code of a worker that had to end itself

TOKENS = ("holdfast tokens create ", "holdfast tokens list", "holdfast tokens revoke ")

every_entry = pytest.mark.parametrize("entry", ALL, ids=lambda e: f"{e.page.stem}:{e.name}")
every_page = pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)


def quoted(names: frozenset[str]) -> set[str]:
    return {f"`{name}`" for name in names}


WANTED: dict[str, Callable[[], set[str]]] = {
    "alerts": lambda: quoted(source.alerts() | source.rules()),
    "parked": lambda: set(source.parked()),
    "failures": lambda: quoted(source.kinds()),
    "doctor": lambda: quoted(source.invariants() | source.doctor_lines()),
    "codes": lambda: quoted(source.codes()),
}


@pytest.mark.parametrize("part", BOOK)
def test_all_that_the_source_has_is_told_once_and_nothing_else(part: str) -> None:
    told, wanted = [entry.name for entry in entries(*BOOK[part])], WANTED[part]()
    assert wanted
    assert sorted(wanted - set(told)) == [], "without an entry"
    assert sorted(set(told) - wanted) == [], "an entry of what does not exist"
    assert sorted(told) == sorted(set(told)), "two entries of one name"


def test_the_source_is_really_read() -> None:
    """One of each way in which a code is written."""
    assert {
        "error",  # a class, with its type
        "queue-full",  # a class of the domain
        "no-pool",  # a class elsewhere
        "method-not-allowed",  # a table
        "http-error",  # the word for all others
        "internal",  # an answer
        "aborted",  # a line of the command line
    } <= source.codes()


@pytest.mark.parametrize(
    "line",
    [
        "class Full(Exception): code = 'found'",
        "class Full(Exception): code: str = 'found'",
        "class Full(Failed, code='found'): ...",
        "def say(text, code): ...\nsay('full', 'found')",
        "def say(text, code): ...\nsay('full', code='found')",
        "def say(text, *, code): ...\nsay('full', code='found')",
        "async def say(text, code): ...\nawait here.say('full', 'found')",
        "class Full:\n  def __init__(self, code): ...\nraise Full('found')",
        "class Full:\n  def say(self, code): ...\nFull().say('found')",
        "elsewhere.answer(code='found')",
        "error.code = 'found'",
        "code = known.get(503, 'found')",
    ],
)
def test_a_code_is_found_however_it_is_written(line: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(line)
    assert [*source.codes_in([tmp_path / "module.py"])] == ["found"]


@every_entry
def test_an_entry_says_what_it_means_how_to_see_it_and_what_to_do(entry: Entry) -> None:
    assert [name for name, _ in entry.parts] in PARTS
    assert all(len(text) > 5 for _, text in entry.parts)
    assert entry.body.lstrip().startswith("- **Means:**")


def severities() -> Iterator[tuple[str, str]]:
    yield from SEVERITIES.items()
    for group in yaml.safe_load(source.RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["labels"]["severity"]


@pytest.mark.parametrize(("name", "severity"), [*severities()])
def test_an_alert_s_entry_begins_with_how_urgent_it_is(name: str, severity: str) -> None:
    [entry] = [one for one in entries("alerts") if one.name == f"`{name}`"]
    assert entry.parts[0][1].startswith(f"{severity}. ")


def kinds_of_errors(of: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    yield of
    for one in of.__subclasses__():
        yield from kinds_of_errors(one)


def test_where_an_entry_names_a_status_of_http_it_is_the_one_that_is_answered() -> None:
    answered = {
        kind.code: next(s for known, s in problems._STATUSES if issubclass(kind, known))
        for kind in kinds_of_errors()
        if issubclass(kind, tuple(known for known, _ in problems._STATUSES))
    } | {code: status for status, code in problems._CODES.items()}
    named = 0
    for entry in entries(*CODES):
        for status in re.findall(r"HTTP (\d{3})", entry.parts[0][1]):
            if (code := entry.name.strip("`")) in answered:
                assert int(status) == answered[code], entry.name
                named += 1
    assert named > 20


def test_every_exit_code_is_told() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", text_of(START), re.MULTILINE)}
    assert told == {*map(int, Exit), LEASE_LOST}


@every_page
def test_every_command_parses(page: Path) -> None:
    for args, is_whole in commands(page):
        try:
            parse(args, is_whole=is_whole)
        except Exception as error:
            pytest.fail(f"holdfast {' '.join(args)}: {error}")


def token_blocks() -> list[str]:
    blocks = [body for page in pages() for _, _, body in FENCED.findall(text_of(page))]
    return [block for block in blocks if "holdfast tokens create" in block]


@pytest.mark.parametrize("block", token_blocks())
def test_the_lines_that_make_a_token_do_so_as_they_stand(block: str, tmp_path: Path) -> None:
    """The lines run in a shell that knows nothing else of the service."""
    kept = tmp_path / "tokens.json"
    lines = block.replace("/etc/holdfast/tokens.json", str(kept)) + "\necho made: $TOKEN"
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", lines],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\bhf_[0-9a-f]{12}_[\w-]{43}\b", done.stdout)
    assert kept.exists()


def test_a_text_that_names_a_command_on_tokens_names_their_file() -> None:
    """The command would end with exit code 2 where HOLDFAST_TOKENS is not set."""
    assert len(token_blocks()) == 3
    named = [span for page in pages() for span in spans(page) if span.startswith(TOKENS)]
    assert len(named) > 5
    assert [span for span in named if "--file" not in span] == []


@pytest.mark.parametrize(
    "line",
    [
        "holdfast suspendd list",
        "holdfast suspended",
        "holdfast suspended show",
        "holdfast suspended lst",
        "holdfast suspended list --grouped",
        "holdfast suspended list --limit many",
        "holdfast queues pause mail extra",
        "holdfast bulk start resurrect --everything",
        "holdfast plans rollback p --wave 0",
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    with pytest.raises(TyperException):
        parse(words_of(line)[1:])


def test_a_text_may_only_name_a_command() -> None:
    parse(["suspended", "show"], is_whole=False)
    parse(["suspended"], is_whole=False)
    with pytest.raises(TyperException):
        parse(["suspended", "shw"], is_whole=False)


def test_there_are_commands_on_every_page() -> None:
    assert all([*commands(page)] for page in (START, *(FOLDER / f"{n}.md" for n in BOOK["codes"])))
    assert sum(len([*commands(page)]) for page in pages()) > 200


DOCUMENT: dict[str, Any] = bare_api(Service(declared()), None).openapi()


@dataclass(frozen=True)
class Route:
    method: str
    path: re.Pattern[str]
    body: dict[str, Any] | None  # its schema


def routes() -> Iterator[Route]:
    """A part of a path that has a choice takes only what it may be."""
    yield Route("GET", re.compile(r"/openapi\.json"), None)
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            pattern = path
            for one in operation.get("parameters", ()):
                if one["in"] == "path":
                    choice = "|".join(choices(one["schema"])) or "[^/]+"
                    pattern = pattern.replace(f"{{{one['name']}}}", f"(?:{choice})")
            kinds = operation.get("requestBody", {}).get("content", {})
            body = kinds.get("application/json", {}).get("schema")
            yield Route(method.upper(), re.compile(pattern), body)


def choices(schema: dict[str, Any]) -> list[str]:
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    found: list[str] = schema.get("enum", [])
    return found


ROUTES = list(routes())


def served(request: Request) -> list[Route]:
    return [
        route
        for route in ROUTES
        if route.method == request.method and route.path.fullmatch(request.path)
    ]


def wrong_with(request: Request) -> str:
    """Empty: the service would take it."""
    said = f"{request.method} {request.path}"
    found = served(request)
    if not found:
        return f"{said}: nobody answers it"
    if request.body is None:
        return ""
    schema = (found[0].body or {"not": {}}) | {"components": DOCUMENT["components"]}
    try:
        jsonschema_rs.validate(schema, json.loads(request.body))
    except ValueError as error:
        return f"{said}: {str(error).splitlines()[0]}"
    return ""


@every_page
def test_every_request_is_one_that_the_service_takes(page: Path) -> None:
    assert [wrong for one in requests(page) if (wrong := wrong_with(one))] == []


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "/internal/alarms"),
        Request("POST", "/internal/alerts"),
        Request("POST", "/internal/queues/mail/intake/stop"),
        Request("POST", "/internal/workers/scale", '{"workers": 4}'),
        Request("POST", "/internal/workers/scale", '{"processes": 4'),
    ],
)
def test_a_request_that_the_service_does_not_take_is_found(request_: Request) -> None:
    assert wrong_with(request_)
    assert not wrong_with(Request("POST", "/internal/workers/scale", '{"processes": 4}'))


def test_there_are_requests_to_check() -> None:
    assert sum(len([*requests(page)]) for page in pages()) > 40


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, heading in links(page):
        assert path.exists(), f"{path.relative_to(ROOT)} of {page.name}"
        if heading:
            assert heading in anchors(path), f"{path.name}#{heading} of {page.name}"


def test_the_index_leads_to_every_entry() -> None:
    led = {(path, heading) for path, heading in links(START)}
    assert [e.name for e in ALL if (e.page, slug(e.name)) not in led] == []


def test_the_first_page_leads_to_all_the_others() -> None:
    led = {path for path, _ in links(START)}
    assert [page.name for page in pages()[1:] if page not in led] == []


@every_page
def test_every_setting_and_metric_it_names_exists(page: Path) -> None:
    settings = {f"{PREFIX}{name}".upper() for name in (*Settings.model_fields, *BESIDE)}
    assert set(re.findall(rf"\b{PREFIX}[A-Z_]+", text_of(page))) <= settings
    assert set(re.findall(r"\bholdfast_[a-z_]+\b", text_of(page))) <= set(FAMILIES)
