"""A request's callback URL is told the outcome: signed, retried by the engine, and never lost."""

import base64
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast import Filter, Holdfast, Status
from holdfast.domain import notification
from holdfast.errors import KeyConflict, UrlRefused
from holdfast.insight.views.tasks import callback_view, detail_view
from holdfast.notify.addresses import Allowed
from holdfast.notify.hooks import Hooks
from holdfast.notify.signature import BadSignature, Secret, verify
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.notified_app import (
    FILE_SECRET,
    SECRET,
    all_told,
    deliveries,
    hook,
    submit,
    telling_app,
)
from tests.support.sinks.receiver import (
    Behaviour,
    Receiver,
    answer,
    close,
    endless_body,
    hang,
    redirect,
    reset,
)


@pytest.fixture
def app(tmp_path: Path) -> Holdfast:
    return telling_app(tmp_path, redact=["ssn"])


@pytest.fixture
def engine(app: Holdfast, holdfast_engine: MakeEngine) -> Engine:
    return holdfast_engine(app)


async def test_it_is_told_the_result_once(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    handle = await submit(
        app, "mail.send", tenant="t-1", key="first", callback=receiver.url("/told?who=me")
    )
    await engine.drain()
    [said] = all_told(receiver, engine, Secret.parse(FILE_SECRET).derive("t-1").text())
    assert receiver.seen[0].path == "/told?who=me"
    assert said["type"] == "TaskCompleted"
    data = said["data"]
    assert (data["taskId"], data["taskStatus"], data["status"]) == (
        handle.id,
        Status.COMPLETED,
        "completed",
    )
    assert (data["result"], data["tenantId"], data["key"]) == ("sent to you", "t-1", "first")
    await engine.advance("2d")
    assert len(receiver.seen) == 1


async def test_it_is_told_of_the_suspension_and_then_of_the_end(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    handle = await submit(app, "mail.lost", callback=receiver.url())
    await engine.drain()
    await handle.retry()
    await engine.drain()
    first, second = all_told(receiver, engine)
    assert (first["type"], first["data"]["status"]) == ("TaskFailed", "suspended")
    assert (second["type"], second["data"]["result"]) == ("TaskCompleted", "sent to you after all")
    error = first["data"]["error"]
    assert error["message"].startswith("no such box: you")
    assert "hunter2" not in receiver.seen[0].body.decode()
    assert "traceback" not in error


async def test_it_is_told_of_what_nobody_ran(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    handle = await submit(app, "mail.send", callback=receiver.url())
    await handle.cancel(reason="not wanted any more")
    await engine.drain()
    [said] = all_told(receiver, engine)
    assert said["type"] == "TaskCancelled"
    assert said["data"]["reason"] == "not wanted any more"
    in_the_words_of_the_api = said["data"]["status"]
    assert (said["data"]["taskStatus"], in_the_words_of_the_api) == (Status.CANCELLED, "completed")


async def test_it_is_told_of_a_task_that_is_not_kept(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    handle = await submit(app, "mail.gone", callback=receiver.url())
    await engine.drain()
    assert (await app.store.views.load([handle.id])) == [None]
    [said] = all_told(receiver, engine)
    assert said["data"]["result"] == "sent to you"


async def test_a_crash_after_the_end_was_written_loses_nothing(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    engine.crash_at("send", when="commit")
    await submit(app, "mail.send", callback=receiver.url())
    await engine.drain()
    assert engine.deaths == 1
    assert len(receiver.seen) == 1


async def test_a_crash_after_it_was_sent_sends_it_again_under_the_same_id(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    engine.crash_at(notification.STAGE, when="after")
    await submit(app, "mail.send", callback=receiver.url())
    await engine.drain()
    ids = [seen.headers["webhook-id"] for seen in receiver.seen]
    assert len(ids) == 2
    assert len(set(ids)) == 1


@pytest.mark.parametrize(
    "bad",
    [answer(500), answer(404), answer(429), close, reset],
    ids=["500", "404", "429", "closed", "reset"],
)
async def test_what_fails_is_tried_again_under_the_same_id(
    app: Holdfast, engine: Engine, bad: Behaviour
) -> None:
    async with Receiver(bad, bad, answer(204)) as receiver:
        await submit(app, "mail.send", callback=receiver.url())
        await engine.drain()
        assert len(receiver.seen) == 1
        for _ in range(2):
            await engine.advance("40s")
            await engine.drain()
        assert len(receiver.seen) == 3
        ids = {seen.headers["webhook-id"] for seen in receiver.seen}
    [delivery] = await deliveries(app)
    assert len(ids) == 1
    assert delivery.status is Status.COMPLETED


async def test_a_receiver_that_hangs_is_tried_again_under_the_same_id(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    """On a slow machine an attempt may be over before it is heard: they are not counted."""
    app = telling_app(tmp_path, webhook_timeout=0.2)
    engine = holdfast_engine(app)
    async with Receiver(hang) as receiver:
        await submit(app, "mail.send", callback=receiver.url())
        await engine.drain()
        [delivery] = await deliveries(app)
        while delivery.status is not Status.COMPLETED:
            assert delivery.failure is not None
            assert "did not answer in 0.2 s" in delivery.failure.message
            assert delivery.status is not Status.FAILED, "the tries are this loop's bound"
            if len(receiver.seen) >= 2:
                receiver.behaviours = (answer(204),)
            engine.clock.advance("10m")
            await engine.drain()
            [delivery] = await deliveries(app)
        assert len({seen.headers["webhook-id"] for seen in receiver.seen}) == 1


@pytest.mark.parametrize("seconds", [0, 1, 30])
async def test_who_is_busy_costs_no_try(app: Holdfast, engine: Engine, seconds: int) -> None:
    async with Receiver(*[answer(429, f"retry-after: {seconds}")] * 20, answer(200)) as receiver:
        await submit(app, "mail.send", callback=receiver.url())
        await engine.drain()
        await engine.advance("3h")
        [delivery] = await deliveries(app)
        assert (delivery.status, delivery.failures) == (Status.COMPLETED, 0)
        assert len(receiver.seen) == 21


async def test_a_receiver_can_say_when(app: Holdfast, engine: Engine) -> None:
    async with Receiver(answer(503, "retry-after: 300"), answer(200)) as receiver:
        await submit(app, "mail.send", callback=receiver.url())
        await engine.drain()
        await engine.advance("4m")
        assert len(receiver.seen) == 1
        await engine.advance("2m")
        assert len(receiver.seen) == 2


async def test_a_redirect_is_not_followed(app: Holdfast, engine: Engine) -> None:
    async with Receiver(answer(200)) as other:
        async with Receiver(redirect(other.url("/in"))) as receiver:
            await submit(app, "mail.send", callback=receiver.url())
            await engine.drain()
        assert not other.seen
    [delivery] = await deliveries(app)
    assert delivery.status is Status.FAILED
    assert delivery.failure is not None
    assert "redirects are not followed" in delivery.failure.message


async def test_who_is_gone_is_not_asked_again(app: Holdfast, engine: Engine) -> None:
    async with Receiver(answer(410)) as receiver:
        await submit(app, "mail.send", callback=receiver.url())
        await engine.drain()
    [delivery] = await deliveries(app)
    assert delivery.status is Status.FAILED


async def test_an_endless_answer_is_an_answer(app: Holdfast, engine: Engine) -> None:
    async with Receiver(endless_body) as receiver:
        await submit(app, "mail.send", callback=receiver.url())
        await engine.drain()
    [delivery] = await deliveries(app)
    assert delivery.status is Status.COMPLETED


async def test_nothing_of_the_answer_is_kept(app: Holdfast, engine: Engine) -> None:
    said = b"the inner page of a metadata service"
    async with Receiver(answer(500, "x-inner: metadata", body=said)) as receiver:
        await submit(app, "mail.send", callback=receiver.url("/p?token=abc"))
        await engine.drain()
    [delivery] = await deliveries(app)
    detail = await app.store.views.detail(delivery.id)
    assert detail is not None
    assert detail.task.failure is not None
    kept = repr((detail.task.failure, detail.events, detail.result))
    assert "metadata" not in kept
    assert "token=abc" not in kept
    assert detail.task.failure.message == f"127.0.0.1:{receiver.port} answered 500"


async def test_spent_retries_suspend_it_and_a_person_sends_it_again(
    app: Holdfast, engine: Engine
) -> None:
    async with Receiver(*[answer(500)] * 12, answer(200)) as receiver:
        await submit(app, "mail.send", callback=receiver.url())
        await engine.drain()
        await engine.advance("2d")
        [delivery] = await deliveries(app)
        assert delivery.status is Status.FAILED
        assert len(receiver.seen) == 12
        await app.control.retry(delivery.id)
        await engine.drain()
        [delivery] = await deliveries(app)
        assert delivery.status is Status.COMPLETED


async def test_a_large_result_is_left_to_be_fetched(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    await submit(app, "mail.send", "x" * 70_000, callback=receiver.url())
    await engine.drain()
    [said] = all_told(receiver, engine)
    assert said["data"]["result"] is None
    assert said["data"]["resultOmitted"] is True


async def test_declared_secrets_are_hidden_in_results_and_others_are_not(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    @app.task("people.find")
    async def find(ctx: object) -> dict[str, str]:
        return {"ssn": "123-45-6789", "total_tokens": "12"}

    await submit(app, "people.find", None, callback=receiver.url())
    await engine.drain()
    [said] = all_told(receiver, engine)
    assert said["data"]["result"]["total_tokens"] == "12"
    assert "123-45-6789" not in receiver.seen[0].body.decode()


async def test_each_tenant_has_a_secret_of_its_own(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    """Who can verify a message can make one, and must not make another tenant's."""
    now, master = engine.clock.now(), Secret.parse(FILE_SECRET)
    secrets = {tenant: master.derive(tenant) for tenant in ("t-1", "t-2", None)}
    for tenant, own in secrets.items():
        await submit(app, "mail.send", tenant=tenant, callback=receiver.url())
        await engine.drain()
        seen = receiver.seen.pop()
        verify(own, seen.headers, seen.body, now=now)
        for other in (master, *(one for one in secrets.values() if one is not own)):
            with pytest.raises(BadSignature):
                verify(other, seen.headers, seen.body, now=now)


async def test_what_is_open_to_hooks_is_not_open_to_callbacks(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    ops = hook(receiver, "TaskCompleted")
    app = telling_app(tmp_path, hooks={"ops": ops}, callback_allow=["10.0.0.5"])
    engine = holdfast_engine(app)
    with pytest.raises(UrlRefused, match=r"host is allowed in HOLDFAST_CALLBACK_ALLOW$"):
        await submit(app, "mail.send", callback=receiver.url())
    await submit(app, "mail.send")
    await engine.drain()
    assert len(receiver.seen) == 1
    with pytest.raises(UrlRefused):
        app.hooks.check_callback("http://127.0.0.1:9/")
    assert app.hooks.check_callback("http://10.0.0.5/") == "http://10.0.0.5/"


async def test_a_callback_that_is_allowed_no_more_is_not_sent(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    """Of one that was taken before the setting changed: hooks may go there, it may not."""
    app = telling_app(tmp_path)
    engine = holdfast_engine(app)
    await (await submit(app, "mail.send", callback=receiver.url())).cancel()
    with patch.object(Hooks, "allowed_to", lambda *_: Allowed()):
        await engine.drain()
    [delivery] = await deliveries(app)
    assert delivery.status is Status.FAILED
    assert receiver.seen == []


async def test_where_it_goes_is_shown_without_path_and_query(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    handle = await submit(app, "mail.send", callback=receiver.url("/hooks/T0KEN?sig=abcdef"))
    await engine.drain()
    [delivery] = await deliveries(app)
    for task_id in (handle.id, delivery.id):
        detail = await app.store.views.detail(task_id)
        assert detail is not None
        shown = repr(detail_view(detail, app.redactor, now=0.0))
        assert "T0KEN" not in shown
        assert "abcdef" not in shown
    [task] = await app.store.views.load([handle.id])
    assert task is not None
    assert callback_view(task.callback) == f"http://127.0.0.1:{receiver.port}/…"


async def test_another_secret_does_not_verify(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    await submit(app, "mail.send", callback=receiver.url())
    await engine.drain()
    [seen] = receiver.seen
    other = "whsec_" + base64.b64encode(b"x" * 32).decode()
    with pytest.raises(BadSignature):
        verify(other, seen.headers, seen.body, now=engine.clock.now())
    with pytest.raises(BadSignature):
        verify(SECRET, seen.headers, seen.body + b" ", now=engine.clock.now())


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://user:pass@example.com/",
        "ftp://example.com/",
        "telegram:1/2",
        "file:///etc/passwd",
        "https://localhost/",
    ],
)
async def test_an_address_that_is_not_meant_is_refused_at_once(
    app: Holdfast, engine: Engine, url: str
) -> None:
    with pytest.raises(UrlRefused):
        await submit(app, "mail.send", callback=url)
    assert not (await app.store.views.find(Filter(), limit=1)).tasks


async def test_without_a_secret_no_callback_is_taken(holdfast_engine: MakeEngine) -> None:
    app = Holdfast("memory://")

    @app.task("mail.send")
    async def send(ctx: object) -> None: ...

    holdfast_engine(app)
    with pytest.raises(UrlRefused, match="HOLDFAST_WEBHOOKS"):
        await submit(app, "mail.send", None, callback="https://example.com/")


async def test_the_same_key_with_another_callback_is_a_conflict(
    app: Holdfast, engine: Engine, receiver: Receiver
) -> None:
    first = await submit(app, "mail.send", key="k", callback=receiver.url("/a"))
    again = await submit(app, "mail.send", key="k", callback=receiver.url("/a"))
    assert first.id == again.id
    with pytest.raises(KeyConflict):
        await submit(app, "mail.send", key="k", callback=receiver.url("/b"))


def test_a_new_secret_is_a_secret() -> None:
    assert repr(Secret.parse(Secret.make())) == "Secret(***)"
