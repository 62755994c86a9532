"""The guides for those who come from elsewhere: our program of each is a file, and it runs."""

import ast
import re
import signal
import subprocess
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Status, TriggerStatus
from holdfast.errors import TaskRolledBack
from holdfast.testing.plugin import MakeEngine
from tests.support.programs import loaded, run_python

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "moving"
GUIDES = ROOT / "docs" / "moving"
PEERS = ("celery", "arq", "dbos")

KILLED = """
import asyncio, os, signal
import {module} as program

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

program.{last} = die
asyncio.run(program.main())
"""
FIRST_EFFECT = {
    "celery": "charged 7",
    "arq": "asked for https://example.org/",
    "dbos": "held 12a",
}
DIES_IN = {"celery": "book_parcel", "arq": "len", "dbos": "take_money"}
RESULT = {
    "celery": "order 7 is on its way, paid with receipt-7",
    "arq": "29 characters",
    "dbos": "ann has seat 12a, paid",
}
ONCE = {"celery": True, "arq": False, "dbos": True}  # a task of one stage has no checkpoint


def blocks(peer: str) -> list[str]:
    guide = (GUIDES / f"from-{peer}.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", guide, re.DOTALL)


def program(peer: str) -> ModuleType:
    """A fresh one each time: an app belongs to one test."""
    return loaded(PROGRAMS / f"from_{peer}.py", f"from_{peer}")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Unbuffered: what a killed process said is heard."""
    # A machine that stands still for longer than the lease is no crash that counts.
    settings = {"HOLDFAST_LEASE": "2s", "HOLDFAST_CRASH_LIMIT": "100"}
    return run_python(folder, "-u", *command, **settings, PYTHONPATH=str(PROGRAMS))


@pytest.mark.parametrize("peer", PEERS)
def test_the_guide_shows_our_program_as_it_is(peer: str) -> None:
    ours = (PROGRAMS / f"from_{peer}.py").read_text(encoding="utf-8")
    assert ours in blocks(peer)


@pytest.mark.parametrize("peer", PEERS)
def test_the_guide_shows_their_program_in_whole(peer: str) -> None:
    theirs = [block for block in blocks(peer) if f"from {peer} import" in block]
    assert theirs
    for block in theirs:
        ast.parse(block)


@pytest.mark.parametrize("peer", PEERS)
def test_every_page_that_the_guide_links_to_exists(peer: str) -> None:
    guide = (GUIDES / f"from-{peer}.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", guide) if not link.startswith("#")]
    assert links
    assert [link for link in links if not (GUIDES / link).exists()] == []


@pytest.mark.parametrize("peer", PEERS)
def test_our_program_runs_and_prints_its_result(peer: str, tmp_path: Path) -> None:
    done = run(tmp_path, str(PROGRAMS / f"from_{peer}.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == RESULT[peer]


@pytest.mark.parametrize("peer", PEERS)
def test_killed_and_started_again_it_goes_on_behind_what_is_done(peer: str, tmp_path: Path) -> None:
    first = run(tmp_path, "-c", KILLED.format(module=f"from_{peer}", last=DIES_IN[peer]))
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert FIRST_EFFECT[peer] in first.stdout
    second = run(tmp_path, str(PROGRAMS / f"from_{peer}.py"))
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[-1] == RESULT[peer]
    assert (FIRST_EFFECT[peer] not in second.stdout) == ONCE[peer]


def bank_keys(shop: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the keys with which the bank is asked."""
    keys: list[str] = []

    def ask_bank(number: int, key: str) -> str:
        keys.append(key)
        return f"receipt-{number}"

    monkeypatch.setattr(shop, "ask_bank", ask_bank)
    return keys


async def test_a_parcel_service_that_is_away_costs_no_second_charge(
    holdfast_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = program("celery")
    engine = holdfast_engine(shop.app)
    keys = bank_keys(shop, monkeypatch)
    away = [ConnectionError("away"), ConnectionError("still away")]

    def book_parcel(number: int, receipt: str) -> str:
        if away:
            raise away.pop()
        return f"{number} by {receipt}"

    monkeypatch.setattr(shop, "book_parcel", book_parcel)
    handle: Handle[str] = await shop.order.submit(7, tenant="ann")
    engine.crash_at("charge", when="commit")  # charged and written, and the worker dies
    await engine.drain()
    assert (await handle.info()).status is Status.RETRYING
    await engine.advance("1m")
    assert await handle.result() == "7 by receipt-7"
    assert len(keys) == 1


async def test_a_worker_that_dies_before_it_has_written_the_charge_asks_with_the_same_key(
    holdfast_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = program("celery")
    engine = holdfast_engine(shop.app)
    keys = bank_keys(shop, monkeypatch)
    handle: Handle[str] = await shop.order.submit(7)
    engine.crash_at("charge", when="after")
    await engine.drain()
    await handle.result()
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_count_is_made_each_night(
    holdfast_engine: MakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = program("celery")
    engine = holdfast_engine(shop.app)
    await engine.drain()
    await engine.advance("2d")
    assert capsys.readouterr().out.count("counted by") == 2


async def test_a_busy_site_is_asked_again_when_it_said(
    holdfast_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = program("arq")
    engine = holdfast_engine(pages.app)
    asked_at: list[float] = []

    async def download(url: str) -> str:
        asked_at.append(engine.clock.now())
        if len(asked_at) < 3:
            raise pages.Busy
        return url

    monkeypatch.setattr(pages, "download", download)
    handle: Handle[int] = await pages.fetch.submit("abc", key="abc")
    again: Handle[int] = await pages.fetch.submit("abc", key="abc")
    assert again.id == handle.id
    await engine.drain()
    await engine.advance("1m")
    assert await handle.result() == 3
    waits = [later - sooner for sooner, later in pairwise(asked_at)]
    assert waits == pytest.approx([5, 10], abs=0.1)


async def test_the_nightly_clean_is_declared_by_the_zone_of_its_people(
    holdfast_engine: MakeEngine,
) -> None:
    pages = program("arq")
    engine = holdfast_engine(pages.app)
    await engine.drain()
    nightly = await pages.app.schedule.get("nightly-clean")
    [at] = await nightly.next(1)
    assert (at.hour, at.minute) == (4, 30)
    assert (await nightly.info()).status is TriggerStatus.PENDING


async def test_a_booking_that_is_not_paid_is_rolled_back_by_a_person(
    holdfast_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookings = program("dbos")
    engine = holdfast_engine(bookings.app)
    did: list[str] = []

    def take_money(guest: str, key: str) -> str:
        did.append("pay")
        raise ConnectionError("no answer")

    monkeypatch.setattr(bookings, "hold_seat", note(did, "hold"))
    monkeypatch.setattr(bookings, "free_seat", note(did, "free"))
    monkeypatch.setattr(bookings, "take_money", take_money)
    handle: Handle[str] = await bookings.booking.submit(bookings.Booking("ann", "12a"))
    await engine.drain()
    await engine.advance("10s")
    assert (await handle.info()).status is Status.FAILED
    assert did == ["hold", "pay", "pay", "pay"]
    await handle.rollback("the card is refused")
    await engine.drain()
    with pytest.raises(TaskRolledBack):
        await handle.result()
    assert did[-1] == "free"


def note(did: list[str], what: str) -> Any:
    def call(*_: object) -> str:
        did.append(what)
        return what

    return call


async def test_a_stage_may_submit_a_task_of_its_own_and_a_replay_makes_no_second(
    holdfast_engine: MakeEngine,
) -> None:
    """The guides recommend this instead of child workflows."""
    app = Holdfast()
    ran: list[int] = []

    @app.task("child")
    async def child(ctx: Context, number: int) -> None:
        ran.append(number)

    parent = app.workflow("parent", payload=int)

    @parent.stage
    async def send(ctx: Context, number: int) -> str:
        return (await child.submit(number, key=ctx.key)).id

    engine = holdfast_engine(app)
    engine.crash_at("send", when="after")  # submitted, and not written down
    await parent.submit(7)
    await engine.drain()
    assert ran == [7]
