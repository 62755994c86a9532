"""The chain of audits: whoever changes a link is found out."""

import hashlib

import pytest
from msgspec.structs import replace

from holdfast.domain.audit import START, Anchor, Audit, AuditLink, digest, first_break, link_entry
from holdfast.domain.task.task import By

ENTRY = Audit(
    task_id="queue:slow",
    command="pause-intake",
    by=By(actor="ada", origin="::1", reason="because"),
    at=1.5,
    before="on",
    after="off",
)


def chain(number: int, before: Anchor | None = None) -> list[AuditLink]:
    links: list[AuditLink] = []
    at = before or Anchor()
    for n in range(number):
        links.append(link_entry(at, replace(ENTRY, task_id=f"task-{n}")))
        at = links[-1].anchor
    return links


def test_links_are_numbered_from_one_and_hang_on_the_one_before() -> None:
    links = chain(3)
    assert [link.seq for link in links] == [1, 2, 3]
    assert links[0].hash == digest(START, 1, links[0].entry)
    assert links[2].hash == digest(links[1].hash, 3, links[2].entry)
    assert first_break(Anchor(), links) is None


def test_an_empty_chain_is_whole() -> None:
    assert first_break(Anchor(), []) is None


def test_a_hash_can_be_made_without_this_code() -> None:
    body = (
        b'{"after":"off","at":1.5,"before":"on",'
        b'"by":{"actor":"ada","origin":"::1","reason":"because"},'
        b'"command":"pause-intake","taskId":"queue:slow"}'
    )
    wanted = hashlib.sha256(b"0" * 64 + b"\n1\n" + body).hexdigest()
    assert link_entry(Anchor(), ENTRY).hash == wanted


def test_a_part_of_a_chain_is_judged_from_where_it_begins() -> None:
    links = chain(5)
    assert first_break(links[2].anchor, links[3:]) is None
    assert first_break(Anchor(), links[3:]) is not None
    assert first_break(links[1].anchor, links[3:]) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"task_id": "other"},
        {"command": "other"},
        {"by": By(actor="other", origin="::1", reason="because")},
        {"by": By(actor="ada", origin="other", reason="because")},
        {"by": By(actor="ada", origin="::1", reason="other")},
        {"at": 1.5000001},
        {"before": "other"},
        {"after": "other"},
        {"refused": "other"},
    ],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_change_of_any_field_is_found_where_it_is(at: int, change: dict[str, object]) -> None:
    links = chain(5)
    links[at] = replace(links[at], entry=replace(links[at].entry, **change))
    found = first_break(Anchor(), links)
    assert found is not None
    assert (found.seq, found.message) == (at + 1, "its hash does not match its content")


def test_a_change_with_a_hash_of_its_own_is_found_at_the_next_link() -> None:
    links = chain(5)
    links[1] = link_entry(links[0].anchor, replace(links[1].entry, command="other"))
    found = first_break(Anchor(), links)
    assert found is not None
    assert found.seq == 3


def test_a_chain_written_anew_has_another_head() -> None:
    forged = chain(2)
    forged += chain(3, link_entry(forged[1].anchor, replace(ENTRY, command="other")).anchor)
    assert first_break(Anchor(), chain(6)) is None
    assert forged[-1].hash != chain(6)[-1].hash


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_missing_link_is_found(at: int) -> None:
    links = chain(5)
    del links[at]
    found = first_break(Anchor(), links)
    assert found is not None
    assert (found.seq, found.message) == (at + 2, f"number {at + 2} comes after {at}")


def test_a_link_that_was_put_in_is_found() -> None:
    links = chain(5)
    links.insert(2, link_entry(links[1].anchor, replace(ENTRY, command="other")))
    found = first_break(Anchor(), links)
    assert found is not None
    assert found.seq == 3


def test_links_in_another_order_are_found() -> None:
    links = chain(4)
    links[1], links[2] = links[2], links[1]
    assert first_break(Anchor(), links) is not None


def test_entries_that_changed_places_are_found() -> None:
    one, two = chain(2)
    swapped = [replace(one, entry=two.entry), replace(two, entry=one.entry)]
    assert first_break(Anchor(), swapped) is not None
