"""Each Lua file names in its head what it uses, and its script is composed of exactly that."""

import re

import pytest

from holdfast.domain.task.placement import Place
from holdfast.stores.redis import keys, scripts
from holdfast.stores.redis.client.client import Script
from holdfast.stores.redis.scripts import CONSTANTS, ENUMS, FILES, LuaFile
from tests.support import lua_source

SCRIPTS = {name: one for name, one in vars(scripts).items() if isinstance(one, Script)}
SHARED = {name for file in FILES.values() for name in file.uses}
OWNERS = {name: file for file in SHARED for name in lua_source.exports(FILES[file].text)}

each_file = pytest.mark.parametrize("file", FILES.values(), ids=list(FILES))


@each_file
def test_a_head_names_the_files_that_the_code_uses(file: LuaFile) -> None:
    used = {OWNERS[name] for name in lua_source.names_used(file.text) if name in OWNERS}
    assert sorted(file.uses) == sorted(used - {file.name})


@each_file
def test_a_head_names_the_keys_that_the_code_uses(file: LuaFile) -> None:
    assert sorted(file.keys) == sorted(lua_source.keys_used(file.text))
    assert keys.KINDS.issuperset(file.keys)


@each_file
def test_a_head_names_the_constants_that_the_code_uses(file: LuaFile) -> None:
    used = lua_source.constants_used(file.text, CONSTANTS, ENUMS)
    assert sorted(file.constants) == sorted(used)


@each_file
def test_no_file_spells_a_place(file: LuaFile) -> None:
    """The place machine is Python's; the scripts get its places as constants."""
    assert {text.strip() for text in lua_source.quoted(file.text)}.isdisjoint(Place)
    assert not re.search(rf"(?<![.\w])({'|'.join(Place)}) = true\b", file.text)


def test_the_tables_of_the_place_machine_are_sent_as_they_are() -> None:
    source = scripts.APPLY.source
    assert "local RESTING = {later = true, parked = true}\n" in source
    assert "local WAITING = {later = true, line = true, ready = true}\n" in scripts.INSERT.source
    assert "gone = 'settled'" in source


def test_a_shared_name_is_defined_once() -> None:
    names = [name for file in SHARED for name in lua_source.exports(FILES[file].text)]
    assert len(names) == len(set(names))


def test_every_file_is_sent_by_some_script() -> None:
    assert {name for script in SCRIPTS.values() for name in script.files} == FILES.keys()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_defines_what_it_uses_before_it_is_used(name: str) -> None:
    defined = set[str]()
    for file in SCRIPTS[name].files:
        used = lua_source.names_used(FILES[file].text) & OWNERS.keys()
        assert used - lua_source.exports(FILES[file].text) <= defined
        defined |= lua_source.exports(FILES[file].text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_runs_while_its_partition_is_moved(name: str) -> None:
    assert "server" in SCRIPTS[name].files


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("call('GET', K.task(id))", {"call", "K", "id"}),
        ("local id = other", {"other"}),
        ("return {order = 1, name}", {"name"}),
        ("r.order = r.count -- count", {"r"}),
        ("for i, one in ipairs(some) do one() end", {"ipairs", "some"}),
    ],
)
def test_names_are_told_from_fields_and_from_what_the_code_declares(
    text: str, used: set[str]
) -> None:
    words = {"return", "local", "for", "in", "do", "end"}
    assert lua_source.names_used(text) - words == used
