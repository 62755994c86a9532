"""The way in: who is let in, who is not, and what is written down of it."""

import hmac
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from holdfast.domain.audit import Audit
from holdfast.server import Service, create_api
from holdfast.server.auth import tokens as tk
from holdfast.testing.clock import ManualClock
from tests.server.conftest import BASE, Served, declared

SEND = {"type": "mail.send", "payload": "ann", "waitSeconds": 0}


def asking(served: Served, header: str | None, origin: str = "10.1.2.3") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(served.api, client=(origin, 4711))
    headers = {} if header is None else {"authorization": header}
    client = httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers)
    served.clients.append(client)
    return client


async def audits(served: Served) -> list[Audit]:
    return [one for one in await served.app.store.admin.audits(limit=100) if one.refused]


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic YWRtaW46YWRtaW4=", "Bearer hf_000000000000_x", "x"],
)
async def test_who_brings_no_token_that_counts_is_told_to_bring_one(
    idle: Served, header: str | None
) -> None:
    answer = await asking(idle, header).get("/internal/workers")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] == "unauthenticated"


async def test_a_stranger_who_asks_for_a_change_is_written_down_with_the_address(
    idle: Served,
) -> None:
    answer = await asking(idle, "Bearer hf_000000000000_x").post("/api/workflows/apply", json=SEND)
    assert answer.status_code == 401
    [entry] = await audits(idle)
    assert (entry.by.actor, entry.by.origin) == ("anonymous", "10.1.2.3")
    assert (entry.command, entry.refused) == ("POST /api/workflows/apply", "unauthenticated")


async def test_strangers_cannot_fill_the_store(still: Served) -> None:
    client = asking(still, None)
    for _ in range(50):
        assert (await client.post("/api/workflows/apply", json=SEND)).status_code == 401
    assert len(await audits(still)) == 1


async def test_who_may_not_is_refused_by_name_and_every_time(idle: Served) -> None:
    client = asking(idle, f"Bearer {idle.tokens['viewer']}")
    for _ in range(3):
        answer = await client.post("/api/workflows/apply", json=SEND)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    entries = await audits(idle)
    assert [(entry.by.actor, entry.by.origin) for entry in entries] == [
        ("api:viewer", "10.1.2.3")
    ] * 3


async def test_to_look_leaves_no_trace(idle: Served) -> None:
    await asking(idle, None).get("/internal/workers")
    await asking(idle, f"Bearer {idle.tokens['of-t-1']}").get("/internal/workers")
    assert await audits(idle) == []


async def test_a_refused_body_is_not_even_read(idle: Served) -> None:
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(b"x")
        yield b"x"

    answer = await asking(idle, None).post("/api/tasks", content=body())
    assert answer.status_code == 401
    assert read == []


async def test_guessing_is_slowed_down_for_one_address_alone(still: Served) -> None:
    guessing = asking(still, "Bearer hf_000000000000_x", origin="10.6.6.6")
    codes = [(await guessing.get("/internal/workers")).status_code for _ in range(10)]
    assert codes[0] == 401
    assert codes[-1] == 429
    other = asking(still, "Bearer hf_000000000000_x", origin="10.7.7.7")
    assert (await other.get("/internal/workers")).status_code == 401
    good = asking(still, f"Bearer {still.tokens['admin']}", origin="10.6.6.6")
    assert (await good.get("/internal/workers")).status_code == 200


async def test_each_token_has_its_rate() -> None:
    slow, slow_text = tk.make("slow", tk.Role.VIEWER, rate=1)
    quick, quick_text = tk.make("quick", tk.Role.VIEWER)
    service = Service(declared(clock=ManualClock()), tokens=[slow, quick])
    served = Served(service.app, service, create_api(service), {})
    async with served.api.router.lifespan_context(served.api):
        client = asking(served, f"Bearer {slow_text}")
        answers = [await client.get("/api/types") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 429, 429]
        assert int(answers[-1].headers["retry-after"]) >= 1
        other = asking(served, f"Bearer {quick_text}")
        assert {(await other.get("/api/types")).status_code for _ in range(5)} == {200}


async def test_the_secret_is_compared_in_constant_time(
    idle: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, str]] = []
    right = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return right(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for token in ("hf_000000000000_unknown", "nothing", idle.tokens["admin"]):
        await asking(idle, f"Bearer {token}").get("/internal/workers")
    assert len(compared) >= 3  # for an unknown id, too
    assert all(len(one) == len(other) == 64 for one, other in compared)


async def test_a_token_of_the_file_is_revoked_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    ann, text = tk.make("ann", tk.Role.VIEWER)
    tk.write(path, [ann])
    service = Service(declared(tokens=path))
    served = Served(service.app, service, create_api(service), {})
    async with served.api.router.lifespan_context(served.api):
        client = asking(served, f"Bearer {text}")
        assert (await client.get("/api/types")).status_code == 200
        tk.write(path, [])
        service.admission.file._polled_at = -10.0  # type: ignore[union-attr]
        assert (await client.get("/api/types")).status_code == 401
