"""The alphabets of names."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidName
from holdfast.domain.names import KEY_KINDS, check, check_any, normalise, parents
from holdfast.stores.redis.keys import TEMPLATES

DECLARED = ["task type", "stage", "queue"]
GIVEN = ["tenant", "key"]
GIVEN_NAMES = ["trigger", "plan"]
OF_ANY_SCRIPT = [*DECLARED, *GIVEN, *GIVEN_NAMES]
OF_ASCII = ["namespace", "token"]

SCRIPTS = [
    "上海分公司",
    "テナント",
    "서울-본사",
    "Müller",
    "Київ.7",
    "हिन्दी",
    "ไทย",
    "ירושלים",
    "المتجر",
    "𠮷野家",
]
# What is not seen, or steers how the text beside it is shown.
UNSEEN = [
    "\u202e",  # direction
    "\u200f",
    "\u2066",
    "\u061c",
    "\u200b",  # width of nothing
    "\u200d",
    "\ufeff",
    "\u00ad",
    "\u034f",
    "\ufe0f",
    "\u3164",  # letters by their category
    "\u115f",
    "\uffa0",
    "\u2800",  # a symbol
    "\U000e0101",
    "\u3000",  # spaces
    "\u00a0",
    "\u2028",
    "\u0085",  # controls
    "\x7f",
    "\0",
    "\ud800",  # half a character
    "\ue000",  # private
    "\ufffd",
    "\U000ffffe",
]


@pytest.mark.parametrize("kind", [*DECLARED, "namespace"])
@pytest.mark.parametrize("name", ["a", "mail.send", "A-1_b", "x" * 100])
def test_a_declared_name_may_be(kind: str, name: str) -> None:
    assert check(kind, name) == name


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.parametrize("name", ["x" * 200, "租" * 200])
def test_a_declared_name_may_be_long(kind: str, name: str) -> None:
    assert check(kind, name) == name


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.parametrize(
    "name",
    [
        "",
        "1a",
        ".a",
        "a b",
        "a/b",
        "a:b",
        "（a",
        "a·b",
        "a|b",
        "x" * 201,
        "租" * 201,
        "a\n",
        "a\0",
        None,
        7,
        b"a",
    ],
)
def test_a_declared_name_may_not_be(kind: str, name: object) -> None:
    with pytest.raises(InvalidName) as refused:
        check(kind, name)
    assert (refused.value.kind, refused.value.value) == (kind, name)
    assert kind in str(refused.value)


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize(
    "name",
    [
        "t-001",
        "7",
        "a@b.example",
        "urn:x:1",
        "a/b+c=d",
        "x" * 200,
        "租" * 200,
        "北京（朝阳）",
        "李·王",
    ],
)
def test_a_given_name_may_be(kind: str, name: str) -> None:
    assert check(kind, name) == name


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize(
    "name", ["", "-a", "a b", "a{b}", "a*", "a|租", "x" * 201, "租" * 201, "𠮷" * 151, "a\n", None]
)
def test_a_given_name_may_not_be(kind: str, name: object) -> None:
    with pytest.raises(InvalidName):
        check(kind, name)


@pytest.mark.parametrize("kind", OF_ANY_SCRIPT)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_name_may_be_of_any_script(kind: str, name: str) -> None:
    assert check(kind, name) == unicodedata.normalize("NFC", name)


@pytest.mark.parametrize("kind", OF_ASCII)
@pytest.mark.parametrize("name", SCRIPTS)
def test_some_names_are_of_ascii_alone(kind: str, name: str) -> None:
    with pytest.raises(InvalidName):
        check(kind, name)


@pytest.mark.parametrize("kind", OF_ANY_SCRIPT)
@pytest.mark.parametrize("char", UNSEEN, ids=ascii)
def test_what_is_not_seen_is_in_no_name(kind: str, char: str) -> None:
    for name in (f"租{char}户", f"a{char}b", f"{char}租", f"租{char}"):
        with pytest.raises(InvalidName) as refused:
            check(kind, name)
        assert char.isascii() or f"U+{ord(char):04X}" in str(refused.value)


@pytest.mark.parametrize("kind", OF_ANY_SCRIPT)
def test_what_looks_the_same_is_the_same_name(kind: str) -> None:
    apart = unicodedata.normalize("NFD", "Müller-서울-Việt")
    assert check(kind, apart) == "Müller-서울-Việt" == normalise(apart)
    assert check(kind, unicodedata.normalize("NFD", "각" * 100)) == "각" * 100
    assert (check_any(kind, None), check_any(kind, apart)) == (None, "Müller-서울-Việt")


@pytest.mark.parametrize("kind", OF_ANY_SCRIPT)
def test_a_mark_needs_a_letter_before_it(kind: str) -> None:
    with pytest.raises(InvalidName):
        check(kind, "\u0301a")


@pytest.mark.parametrize("name", ["prod:executor", "eu:prod:executor-2", "a:b.c_d-e", "queue"])
def test_a_namespace_may_have_segments(name: str) -> None:
    assert check("namespace", name) == name


@pytest.mark.parametrize(
    "name", ["prod:", ":prod", "a::b", "a:1b", "a:b c", "a:租", f"a:{'x' * 99}"]
)
def test_a_namespace_may_not_be(name: str) -> None:
    with pytest.raises(InvalidName):
        check("namespace", name)


@pytest.mark.parametrize("kind", sorted(KEY_KINDS))
def test_no_segment_of_a_namespace_is_a_kind_of_key(kind: str) -> None:
    for name in (f"prod:{kind}", f"{kind}:prod", f"a:{kind}:b"):
        with pytest.raises(InvalidName, match=f"segment '{kind}'"):
            check("namespace", name)


def test_every_kind_of_key_is_known() -> None:
    """Else a namespace could be taken for keys of another."""
    assert {template.partition(":")[0] for template in TEMPLATES.values()} <= KEY_KINDS


def test_a_namespace_lies_below_those_before_its_colons() -> None:
    assert parents("prod") == []
    assert parents("eu:prod:executor") == ["eu", "eu:prod"]


@given(st.text(max_size=250))
def test_no_name_that_passes_can_break_a_key_or_a_line(name: str) -> None:
    for kind in (*OF_ANY_SCRIPT, *OF_ASCII):
        try:
            passed = check(kind, name)
        except InvalidName:
            continue
        assert passed.isprintable()
        assert passed == unicodedata.normalize("NFC", name)
        assert len(passed.split()) == len(passed.splitlines()) == 1
        assert not set(passed) & set(" {}*?[]\\'\"`<>|&;%,#")
