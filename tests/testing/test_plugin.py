"""The pytest plugin that users get, used as they use it."""

import pytest

pytest_plugins = ["pytester"]

APP = """
from holdfast import Context, Holdfast, Retry

app = Holdfast()  # as in production: the tests bring their own store

upgrade = app.workflow("tenant.upgrade", payload=int, result=str)
calls = []

@upgrade.stage
async def snapshot(ctx: Context, version: int) -> str:
    calls.append("snapshot")
    return f"s-{version}"

@upgrade.stage
def migrate(ctx: Context, version: int) -> str:
    calls.append("migrate")
    return ctx.result_of(snapshot) + " migrated"

@app.task("mail.send", retry=Retry(max=3, backoff=("1m", "5m"), jitter=0.0))
async def send(ctx: Context, to: str) -> str:
    calls.append("send")
    if ctx.attempt < 3:
        raise ConnectionError("the mail server is away")
    return f"sent to {to}"
"""

TESTS = """
import pytest
from shop import app, calls, migrate, send, snapshot, upgrade
from holdfast import Status
from holdfast.testing import StillBusy, context

MARK

@pytest.fixture(autouse=True)
def fresh():
    calls.clear()

async def test_an_upgrade_survives_a_crash(holdfast_engine):
    engine = holdfast_engine(app)
    engine.crash_at("migrate", when="after")
    handle = await upgrade.submit(7, tenant="t-001")
    await engine.drain()
    assert await handle.result() == "s-7 migrated"
    assert calls == ["snapshot", "migrate", "migrate"]

async def test_a_mail_is_sent_again_when_its_time_has_come(holdfast_engine):
    engine = holdfast_engine(app)
    handle = await send.submit("ann")
    await engine.drain()
    assert (await handle.info()).status is Status.RETRYING
    engine.clock.advance("1m")
    await engine.drain()
    assert calls == ["send", "send"]
    await engine.advance("5m")
    assert await handle.result() == "sent to ann"

async def test_each_test_begins_with_nothing(holdfast_engine):
    engine = holdfast_engine(app)
    assert not (await engine.store.views.stats()).by_status
    with pytest.raises(Exception, match="migrat"):
        engine.crash_at("migrat")

async def test_code_under_test_may_open_the_app_itself(holdfast_engine):
    engine = holdfast_engine(app)
    async with app:
        handle = await upgrade.submit(8)
    await engine.drain()
    assert await handle.result() == "s-8 migrated"

async def test_plain_calls():
    assert await snapshot(context(), 7) == "s-7"
    assert migrate(context(results={snapshot: "s-7"}), 7) == "s-7 migrated"
"""


def configure(pytester: pytest.Pytester, *, mode: str = "auto") -> None:
    pytester.makeini(
        f"[pytest]\nasyncio_mode = {mode}\nfilterwarnings = error\n"
        "asyncio_default_fixture_loop_scope = function\n"
    )


def make_suite(pytester: pytest.Pytester, *, mode: str) -> None:
    mark = "pytestmark = pytest.mark.asyncio" if mode == "strict" else ""
    configure(pytester, mode=mode)
    pytester.makepyfile(shop=APP, test_shop=TESTS.replace("MARK", mark))


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_it_works_with_pytest_asyncio(pytester: pytest.Pytester, mode: str) -> None:
    make_suite(pytester, mode=mode)
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=5)
    assert not list(pytester.path.glob("*.db")), "the configured store was never touched"


def test_it_needs_no_other_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        shop=APP,
        test_shop="""
        import asyncio, sys
        from shop import app, send, upgrade

        def test_without_an_async_plugin(holdfast_engine):
            assert "pytest_asyncio" not in sys.modules
            engine = holdfast_engine(app)

            async def story():
                handle = await upgrade.submit(7)
                await engine.drain()
                return await handle.result()

            assert asyncio.run(story()) == "s-7 migrated"

        def test_and_again(holdfast_engine):
            holdfast_engine(app)
        """,
    )
    result = pytester.runpytest_subprocess("-q", "-p", "no:asyncio", "-W", "error")
    result.assert_outcomes(passed=2)


def test_what_does_not_come_to_rest_is_named(pytester: pytest.Pytester) -> None:
    configure(pytester)
    pytester.makepyfile(
        """
        import asyncio
        from holdfast import Context, Holdfast

        app = Holdfast()

        @app.task("hang")
        async def hang(ctx: Context) -> None:
            await asyncio.Event().wait()

        async def test_hang(holdfast_engine):
            engine = holdfast_engine(app)
            await hang.submit()
            await engine.drain(timeout=0.1)
        """
    )
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*StillBusy: not at rest after 0.1 s:*", "*hang *at stage hang*"])


def test_an_app_that_is_open_cannot_be_put_on_another_store(pytester: pytest.Pytester) -> None:
    configure(pytester)
    pytester.makepyfile(
        shop=APP,
        test_shop="""
        import pytest
        from holdfast import HoldfastError
        from shop import app

        async def test_twice(holdfast_engine):
            holdfast_engine(app)
            with pytest.raises(HoldfastError, match="open already"):
                holdfast_engine(app)
        """,
    )
    pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=1)
