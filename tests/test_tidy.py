"""Habits that a machine can hold, so that no reviewer has to."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import vocabulary
from tests.support.source_tree import (
    PACKAGE,
    ROOT,
    Breach,
    assert_none,
    calls_of,
    files_under,
    nodes_of,
    project_files,
    text_of,
)

LINES_MAX = 500

TESTS = ROOT / "tests"

# Written so that this file does not match itself.
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b")
MACHINE_PATH = re.compile(r"/(?:work|root|home)/")
REGISTRY_HOST = re.compile(
    r"pythonhosted[.]org|pypi[.]org/simple|registry[.](?:npmjs|yarnpkg)|deb[.]debian"
)

# Names and docstrings to be mended: how many there still may be. The numbers only fall.
RATCHETS: dict[Callable[[], list[Breach]], int] = {
    vocabulary.gerund_aliases: 0,
    vocabulary.vague_docstrings: 40,
    vocabulary.dangling_test_docstrings: 231,
    vocabulary.dangling_test_functions: 304,
}

SLEEPS = {"time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep"}
FORBIDDEN_WORDS = {"job", "jobs"}


def test_every_file_is_short_enough_to_read() -> None:
    assert_none(
        Breach(path, lines, f"{lines} lines, at most {LINES_MAX}: is it still one idea?")
        for folder in (PACKAGE.parent, TESTS, ROOT / "verify", ROOT / "bench")
        for path in files_under(folder)
        if path.parent.name != "snapshots" and path.suffix not in (".txt", ".json")  # by a machine
        for lines in [len(text_of(path).splitlines())]
        if lines > LINES_MAX
    )


def test_no_test_sleeps() -> None:
    assert_none(
        Breach(path, call.lineno, f"{name}(): move a clock or wait for a named signal")
        for path in files_under(TESTS, ".py")
        for call, name in calls_of(path)
        if name in SLEEPS and not only_yields(call, name)
    )


def test_nothing_is_left_unfinished() -> None:
    assert_none(matches(UNFINISHED, "finish it, or write an issue"))


def test_no_file_names_a_path_of_one_machine() -> None:
    assert_none(matches(MACHINE_PATH, "a path of one machine"))


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert_none(matches(REGISTRY_HOST, "the host of a package registry"))


def test_a_task_is_called_a_task() -> None:
    assert_none(
        Breach(path, line, f"{name}: one word for one thing, and the word is task")
        for path in files_under(PACKAGE, ".py")
        for line, name in names_given_in(path)
        if not FORBIDDEN_WORDS.isdisjoint(words_of(name))
    )


@pytest.mark.parametrize("name", ["job", "job_id", "_next_job", "JobRunner", "runJob", "JOBS_MAX"])
def test_the_wrong_word_is_found_inside_a_name(name: str) -> None:
    assert not FORBIDDEN_WORDS.isdisjoint(words_of(name))


def test_a_public_class_name_is_given_once() -> None:
    assert_none(vocabulary.doubled_classes())


def test_modules_are_named_by_nouns() -> None:
    assert_none(vocabulary.gerund_modules())


def test_docstrings_can_be_read_alone() -> None:
    assert_none(vocabulary.dangling_docstrings())


@pytest.mark.parametrize("text", ["Of one kill.", "``lag``: in seconds.", "None: no such id."])
def test_half_a_sentence_is_found_at_the_start_of_a_docstring(text: str) -> None:
    assert vocabulary.dangling_opener(text)
    assert not vocabulary.dangling_opener(f"Return {text}")


def test_functions_say_what_they_do_to_what() -> None:
    assert_none(vocabulary.dangling_functions())


@pytest.mark.parametrize(
    ("find", "limit"), RATCHETS.items(), ids=lambda one: getattr(one, "__name__", "")
)
def test_what_is_left_to_mend_only_shrinks(find: Callable[[], list[Breach]], limit: int) -> None:
    found = find()
    assert len(found) <= limit, "\n" + "\n".join(map(str, sorted(found)))


def test_folders_are_small_enough_to_look_through() -> None:
    assert_none(vocabulary.full_folders())


def only_yields(call: ast.Call, name: str) -> bool:
    """`asyncio.sleep(0)` gives way to other tasks; it does not wait."""
    zero = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and not call.args[0].value
    return zero and name != "time.sleep"


def matches(pattern: re.Pattern[str], rule: str) -> Iterator[Breach]:
    for path in project_files():
        for line, text in enumerate(text_of(path).splitlines(), start=1):
            if found := pattern.search(text):
                yield Breach(path, line, f"{found.group()}: {rule}")


def names_given_in(path: Path) -> Iterator[tuple[int, str]]:
    """Names that this file chooses itself: not those it only uses."""
    yield 1, path.stem
    for node in nodes_of(path):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.arg():
                yield node.lineno, node.arg
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
