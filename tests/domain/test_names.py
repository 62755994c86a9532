"""The alphabets of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidName
from holdfast.domain.names import check

DECLARED = ["task type", "stage", "queue", "namespace"]
GIVEN = ["tenant", "key"]


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.parametrize("name", ["a", "mail.send", "A-1_b", "x" * 100])
def test_a_declared_name_may_be(kind: str, name: str) -> None:
    assert check(kind, name) == name


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.parametrize(
    "name", ["", "1a", ".a", "a b", "a/b", "a:b", "é", "x" * 101, "a\n", "a\0", None, 7, b"a"]
)
def test_a_declared_name_may_not_be(kind: str, name: object) -> None:
    with pytest.raises(InvalidName) as refused:
        check(kind, name)
    assert (refused.value.kind, refused.value.value) == (kind, name)
    assert kind in str(refused.value)


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("name", ["t-001", "7", "a@b.example", "urn:x:1", "a/b+c=d", "x" * 200])
def test_a_given_name_may_be(kind: str, name: str) -> None:
    assert check(kind, name) == name


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("name", ["", "-a", "a b", "a{b}", "a*", "é", "x" * 201, "a\n", None])
def test_a_given_name_may_not_be(kind: str, name: object) -> None:
    with pytest.raises(InvalidName):
        check(kind, name)


@given(st.text(max_size=250))
def test_no_name_that_passes_can_break_a_key_or_a_line(name: str) -> None:
    for kind in (*DECLARED, *GIVEN):
        try:
            check(kind, name)
        except InvalidName:
            continue
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set(" {}*?[]\\'\"`<>|&;")
