"""Errors are parted from their frames when they were answered, whatever chain they form."""

from holdfast.server.http.route import _forget_frames


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_cyclic_chain_of_causes_comes_to_an_end() -> None:
    first, second, third = (raised(ValueError(word)) for word in "abc")
    first.__cause__, second.__cause__, second.__context__ = second, first, third
    _forget_frames(first)
    assert [one.__traceback__ for one in (first, second, third)] == [None] * 3


def test_both_the_cause_and_the_context_are_parted_from_their_frames() -> None:
    first, cause, context = (raised(ValueError(word)) for word in "abc")
    first.__cause__, first.__context__ = cause, context
    _forget_frames(first)
    assert [one.__traceback__ for one in (first, cause, context)] == [None] * 3
