"""`holdfast audit verify` finds what was done to the chain past the store."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from holdfast.cli.exit_codes import Exit
from holdfast.cli.root import cli
from holdfast.clock import SystemClock
from holdfast.domain.audit import START, Anchor, Audit, AuditLink, link_entry
from holdfast.domain.task.task import By
from holdfast.engine.operations import audit
from holdfast.engine.store_url import store_from_url
from holdfast.ports import Kept, Store
from tests.support.sqlite.sqlite_files import ask
from verify.servers import RedisServer


def entry(number: int) -> Audit:
    by = By(actor="ada", origin="here", reason=f"reason {number}")
    facts = {"command": "pause", "before": "A", "after": "B"}
    return Audit(task_id=f"t-{number}", by=by, at=float(number), **facts)


class Hand(Protocol):
    """One that has no right to write there."""

    url: str
    namespace: str

    def change(self, seq: int) -> None: ...
    def swap(self, seq: int) -> None: ...
    def remove(self, seq: int) -> None: ...
    def spoil(self, seq: int) -> None: ...
    def cut(self, last: AuditLink | None) -> None: ...
    def move_head(self, to: Anchor) -> None: ...
    def forge(self, link: AuditLink) -> None: ...
    def stored(self, seq: int) -> bytes: ...
    def store(self, seq: int, written: bytes) -> None: ...
    def move_base(self, to: Anchor) -> None: ...


class InFile:
    namespace = "executor"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def change(self, seq: int) -> None:
        changed = "CAST(replace(CAST(entry AS TEXT), 'ada', 'eve') AS BLOB)"
        ask(self._path, f"UPDATE audits SET entry = {changed} WHERE n = ?", seq)

    def swap(self, seq: int) -> None:
        for a, b in ((seq, -1), (seq + 1, seq), (-1, seq + 1)):
            ask(self._path, "UPDATE audits SET n = ? WHERE n = ?", b, a)

    def remove(self, seq: int) -> None:
        ask(self._path, "DELETE FROM audits WHERE n = ?", seq)

    def spoil(self, seq: int) -> None:
        ask(self._path, "UPDATE audits SET entry = CAST('{' AS BLOB) WHERE n = ?", seq)

    def cut(self, last: AuditLink | None) -> None:
        ask(self._path, "DELETE FROM audits WHERE n > ?", last.seq if last else 0)

    def move_head(self, to: Anchor) -> None:
        ask(self._path, "UPDATE chain SET head = ?, head_hash = ?", to.seq, to.hash)

    def forge(self, link: AuditLink) -> None:
        self.change(link.seq)
        ask(self._path, "UPDATE audits SET hash = ? WHERE n = ?", link.hash, link.seq)

    def stored(self, seq: int) -> bytes:
        [(body,)] = ask(self._path, "SELECT entry FROM audits WHERE n = ?", seq)
        return bytes(body)

    def store(self, seq: int, written: bytes) -> None:
        ask(self._path, "UPDATE audits SET entry = ? WHERE n = ?", written, seq)

    def move_base(self, to: Anchor) -> None:
        ask(self._path, "DELETE FROM audits WHERE n <= ?", to.seq)
        ask(self._path, "UPDATE chain SET base = ?, base_hash = ?", to.seq, to.hash)


class OnServer:
    def __init__(self, server: RedisServer, client: redis.Redis, namespace: str) -> None:
        self.url, self.namespace = server.url, namespace
        self._client, self._chain = client, f"{namespace}:audit:chain"

    def _at(self, seq: int) -> str:
        found: Any = self._client.lindex(self._chain, seq - 1)
        return str(found)

    def _put(self, seq: int, text: str) -> None:
        self._client.lset(self._chain, seq - 1, text)

    def change(self, seq: int) -> None:
        self._put(seq, self._at(seq).replace("ada", "eve"))

    def swap(self, seq: int) -> None:
        one, other = self._at(seq), self._at(seq + 1)
        self._put(seq, other)
        self._put(seq + 1, one)

    def remove(self, seq: int) -> None:
        self._client.lrem(self._chain, 1, self._at(seq))

    def spoil(self, seq: int) -> None:
        self._put(seq, "{")

    def cut(self, last: AuditLink | None) -> None:
        if last is None:
            self._client.delete(self._chain)
        else:
            self._client.ltrim(self._chain, 0, last.seq - 1)

    def move_head(self, to: Anchor) -> None:
        self._client.hset(f"{self.namespace}:audit:ends", "head", f"{to.seq} {to.hash}")

    def forge(self, link: AuditLink) -> None:
        self.change(link.seq)
        _, _, body = self._at(link.seq).split(" ", 2)
        self._put(link.seq, f"{link.seq} {link.hash} {body}")

    def stored(self, seq: int) -> bytes:
        return self._at(seq).encode()

    def store(self, seq: int, written: bytes) -> None:
        self._client.lset(self._chain, seq - 1, written)  # type: ignore[arg-type]

    def move_base(self, to: Anchor) -> None:
        ends = f"{self.namespace}:audit:ends"
        base = str(self._client.hget(ends, "base") or "0").partition(" ")[0]
        self._client.ltrim(self._chain, to.seq - int(base), -1)
        self._client.hset(ends, "base", f"{to.seq} {to.hash}")


class Place:
    def __init__(self, hand: Hand) -> None:
        self.hand = hand

    def write(self, count: int, start: int = 0, at: float | None = None) -> None:
        async def do(store: Store) -> None:
            for number in range(start, start + count):
                made = entry(number)
                await store.admin.audit(made if at is None else replace(made, at=at))

        self._with_store(do)

    def links(self) -> list[AuditLink]:
        async def look(store: Store) -> list[AuditLink]:
            await store.admin.seal(limit=100)
            return list((await store.admin.chain(limit=100)).links)

        found: list[AuditLink] = self._with_store(look)
        return found

    def prune(self, count: int) -> None:
        async def do(store: Store) -> None:
            gone = await store.admin.prune(
                Kept.AUDIT, older_than_seconds=0, limit=count, dry_run=False
            )
            assert gone == count

        self._with_store(do)

    def _with_store(self, do: Any) -> Any:
        async def whole() -> Any:
            store = store_from_url(self.hand.url, SystemClock(), self.hand.namespace)
            await store.open()
            try:
                return await do(store)
            finally:
                await store.close()

        return asyncio.run(whole())

    def cli(self, *args: str) -> Result:
        env = {"HOLDFAST_STORE": self.hand.url, "HOLDFAST_NAMESPACE": self.hand.namespace}
        return CliRunner().invoke(cli, list(args), env=env | {"COLUMNS": "80", "NO_COLOR": "1"})

    def verify(self, *args: str) -> dict[str, Any]:
        result = self.cli("audit", "verify", "--json", *args)
        told: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (Exit.OK if told["holds"] else Exit.FAILED)
        return told

    def broken_at(self, *args: str) -> int | None:
        broken = self.verify(*args)["broken"]
        return broken["seq"] if broken else None


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "file":
        yield Place(InFile(tmp_path / "tasks.db"))
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        with server.client() as client:
            yield Place(OnServer(server, client, request.getfixturevalue("redis_namespace")))


def test_a_chain_that_holds_says_its_head(place: Place) -> None:
    place.write(5)
    told = place.verify()
    head = place.links()[-1]
    assert told == {
        "holds": True,
        "links": 5,
        "head": f"5:{head.hash}",
        "base": f"0:{START}",
        "loose": 0,
        "broken": None,
        "missing": None,
    }
    result = place.cli("audit", "verify")
    assert result.stdout.splitlines() == [
        "the chain is intact: 5 links",
        f"head  5:{head.hash}",
    ]
    assert max(map(len, result.output.splitlines())) <= 80


def test_an_empty_chain_holds(place: Place) -> None:
    place.write(0)
    told = place.verify()
    assert (told["links"], told["head"]) == (0, f"0:{START}")
    assert place.verify("--head", told["head"])["holds"]


def test_the_chain_is_walked_in_pages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.operations.audit.PAGE", 2)
    place.write(7)
    assert place.verify()["links"] == 7
    place.hand.change(6)
    assert place.broken_at() == 6


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_a_changed_entry_is_found(place: Place, seq: int) -> None:
    place.write(5)
    place.links()
    place.hand.change(seq)
    told = place.verify()
    assert told["broken"] == {"seq": seq, "says": "its hash does not match its content"}
    assert f"BROKEN at number {seq}: its hash" in place.cli("audit", "verify").stdout


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_an_entry_that_was_made_unreadable_is_found(place: Place, seq: int) -> None:
    place.write(5)
    place.links()
    place.hand.spoil(seq)
    assert place.broken_at() is not None


@pytest.mark.parametrize("seq", [1, 3])
def test_a_removed_entry_is_found(place: Place, seq: int) -> None:
    place.write(5)
    place.links()
    place.hand.remove(seq)
    assert place.verify()["broken"]["says"] == f"number {seq + 1} comes after {seq - 1}"


@pytest.mark.parametrize("seq", [1, 4])
def test_entries_that_changed_places_are_found(place: Place, seq: int) -> None:
    place.write(5)
    place.links()
    place.hand.swap(seq)
    assert place.broken_at() in (seq, seq + 1)


@pytest.mark.parametrize("left", [0, 3])
def test_an_end_that_was_cut_is_found(place: Place, left: int) -> None:
    place.write(5)
    links = place.links()
    place.hand.cut(links[left - 1] if left else None)
    told = place.verify()["broken"]
    assert told == {"seq": left, "says": "the chain ends here, but its head is number 5"}


def test_an_end_that_was_cut_with_its_head_is_found_by_a_noted_one(place: Place) -> None:
    place.write(5)
    links, head = place.links(), place.verify()["head"]
    place.hand.cut(links[2])
    place.hand.move_head(links[2].anchor)
    assert place.verify()["holds"]
    told = place.verify("--head", head)["broken"]
    assert told == {"seq": 3, "says": "the chain ends here, but the noted head is number 5"}
    place.write(4, start=5)
    assert place.verify()["holds"]
    told = place.verify("--head", head)["broken"]
    assert told == {"seq": 5, "says": "its hash is not the one that was noted"}


def test_a_chain_that_was_written_anew_is_found_by_a_noted_head(place: Place) -> None:

    place.write(3)
    links, noted = place.links(), place.verify()["head"]
    before = links[1].anchor
    forged = link_entry(before, replace(links[2].entry, by=replace(links[2].entry.by, actor="eve")))
    place.hand.forge(forged)
    place.hand.move_head(forged.anchor)
    assert place.verify()["holds"]
    assert place.broken_at("--head", noted) == 3


def test_a_noted_head_is_found_again_when_the_chain_has_grown(place: Place) -> None:
    place.write(3)
    noted = place.verify()["head"]
    place.write(4, start=3)
    assert place.verify("--head", noted)["holds"]


def test_cleaning_up_breaks_nothing_and_says_its_base(place: Place) -> None:
    place.write(6)
    links = place.links()
    place.prune(4)
    told = place.verify()
    assert (told["holds"], told["links"]) == (True, 2)
    assert told["base"] == f"4:{links[3].hash}"
    assert f"base  4:{links[3].hash}" in place.cli("audit", "verify").stdout
    noted = [f"{link.seq}:{link.hash}" for link in links]
    assert [place.broken_at("--head", head) for head in noted[3:]] == [None, None, None]
    told = place.verify("--head", noted[1])["broken"]
    why = "entries up to 4 are gone, so the noted head cannot be compared"
    assert told == {"seq": 2, "says": why}
    assert place.broken_at("--head", f"4:{START}") == 4


def test_a_head_that_is_not_that_of_the_last_link_is_found(place: Place) -> None:
    place.write(3)
    place.links()
    place.hand.move_head(Anchor(seq=2, hash="0" * 64))
    assert not place.verify()["holds"]


@pytest.mark.parametrize("head", ["5", "5:abc", f"x:{START}", f"-1:{START}", f"1:{START}0"])
def test_a_head_that_is_none_is_invalid(place: Place, head: str) -> None:
    place.write(0)
    result = place.cli("audit", "verify", "--head", head)
    assert result.exit_code == Exit.INVALID
    assert "a head is NUMBER:HASH" in result.stderr


def test_the_list_is_as_it_was(place: Place) -> None:
    place.write(3)
    place.links()
    told = json.loads(place.cli("audit", "--json", "--limit", "2").stdout)
    assert [one["taskId"] for one in told["entries"]] == ["t-2", "t-1"]
    assert told["cursor"] == 2


# -- every stored byte


def test_a_change_of_any_stored_byte_of_a_link_is_found(place: Place) -> None:
    place.write(3)
    place.links()
    written = place.hand.stored(2)

    async def look(store: Store) -> None:
        for at in range(len(written)):
            place.hand.store(2, written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
            assert (await audit.verify(store)).broken is not None, at
        place.hand.store(2, written)
        assert (await audit.verify(store)).broken is None

    place._with_store(look)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body + b" ",
        lambda body: body.replace(b"{", b"{ ", 1),
        lambda body: body[:-1] + b',"approvedBy":"eve"}',
        lambda body: body[:-1] + b',"refused":null}',
        lambda body: body.replace(b'{"taskId"', b'{"taskId":"x","taskId"', 1),
        lambda body: body.replace(b"ada", b"\\u0061da", 1),
    ],
    ids=["blank", "space", "unknown field", "a default", "twice", "escaped"],
)
def test_what_a_reader_passes_over_is_found_too(
    place: Place, change: Callable[[bytes], bytes]
) -> None:
    place.write(3)
    place.links()
    changed = change(place.hand.stored(2))
    assert changed != place.hand.stored(2)
    place.hand.store(2, changed)
    assert place.verify()["broken"] == {"seq": 2, "says": "it is not stored as it was written"}


def test_columns_and_rows_beside_the_links_are_found(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    place = Place(InFile(path))
    place.write(3)
    ask(path, "UPDATE audits SET at = at + 1 WHERE n = 2")
    assert place.broken_at() == 2
    ask(path, "UPDATE audits SET at = at - 1 WHERE n = 2")
    assert place.verify()["holds"]
    ask(path, "INSERT INTO audits SELECT -5, at, entry, hash FROM audits WHERE n = 2")
    assert place.verify()["broken"]["says"] == "1 entries are numbered before the base 0"
    ask(path, "DELETE FROM audits WHERE n < 0")
    ask(path, "ALTER TABLE audits ADD COLUMN note TEXT")
    result = place.cli("audit", "verify", "--json")
    assert result.exit_code in (Exit.FAILED, Exit.STORE), "found, or refused at opening"


def test_fields_beside_the_ends_are_found(redis_server: RedisServer, redis_namespace: str) -> None:
    with redis_server.client() as client:
        place, ends = Place(OnServer(redis_server, client, redis_namespace)), "audit:ends"
        place.write(3)
        head = place.verify()["head"].replace(":", " ")
        key = f"{redis_namespace}:{ends}"
        client.hset(key, "head", f"0{head}")
        assert not place.verify()["holds"]
        client.hset(key, "head", head)
        assert place.verify()["holds"]
        client.hset(key, "note", "x")
        assert place.verify()["broken"]["says"] == "the ends of the chain have a field 'note'"


# -- what is missing at the old end


@pytest.mark.parametrize("left", [0, 2])
def test_a_base_that_was_moved_by_hand_is_said_to_miss_what_is_gone(
    place: Place, left: int
) -> None:
    now = time.time()
    place.write(5, at=now - 86_400)
    links = place.links()
    place.hand.move_base(links[4 - left].anchor)
    told = place.verify()
    assert (told["holds"], told["broken"], told["links"]) == (False, None, left)
    missing = told["missing"]
    assert (missing["count"], missing["explained"]) == (5 - left, False)
    assert missing["says"].startswith(f"numbers 1 to {5 - left} are missing: their prune is not")
    assert "the retention of 365d" in missing["says"]
    shown = place.cli("audit", "verify")
    assert shown.exit_code == Exit.FAILED
    assert "MISSING: numbers 1 to" in shown.stdout
    assert "holds" not in shown.stdout
    noted = links[0]
    below = place.verify("--head", f"{noted.seq}:{noted.hash}")
    assert below["broken"]["says"].startswith("entries up to ")
    assert below["missing"]["count"] == missing["count"]


def test_what_was_cleaned_up_before_its_time_is_missing_unless_a_prune_says_so(
    place: Place,
) -> None:
    place.write(5, at=time.time() - 86_400)
    place.prune(3)
    told = place.verify()
    assert (told["holds"], told["missing"]["explained"]) == (False, False)
    assert "they go up to" in told["missing"]["says"]
    place.cli("prune", "--kind", "audit", "--older-than", "1h")
    told = place.verify()
    assert (told["holds"], told["missing"]["count"]) == (False, 5), "it took two of the five"
    assert "account for 2 of 5" in told["missing"]["says"]


def test_what_the_retention_took_is_told_and_good(place: Place) -> None:
    place.write(4, at=time.time() - 400 * 86_400)
    place.write(2, start=4, at=time.time() - 60)
    place.links()
    place.prune(4)
    told = place.verify()
    assert (told["holds"], told["missing"]["explained"], told["missing"]["count"]) == (
        True,
        True,
        4,
    )
    assert "gone" in place.cli("audit", "verify").stdout
    place.write(1, start=9, at=time.time())
    place.prune(1)
    assert not place.verify()["holds"], "one of those is a minute old"


def test_a_base_whose_clean_up_was_noted_for_another_is_not_explained_by_it(place: Place) -> None:
    place.write(2, at=time.time() - 400 * 86_400)
    place.write(3, start=2, at=time.time() - 60)
    links = place.links()
    place.prune(2)
    assert place.verify()["holds"]
    place.hand.move_base(links[3].anchor)
    told = place.verify()
    assert (told["holds"], told["missing"]["count"]) == (False, 4)
