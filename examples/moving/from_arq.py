"""Fetches pages politely, and cleans up each night: the program of docs/moving/from-arq.md.

`python from_arq.py` runs a worker and its client in one process. `holdfast worker
from_arq:app` runs a worker alone; start as many as you like.
"""

import asyncio

from holdfast import Context, Holdfast, Retry, RetryAfter

app = Holdfast(slots=10)


class Busy(Exception):
    """The other side wants to be left alone for a while."""


@app.task("page.fetch", retry=Retry(max=5), timeout="1m", keep="1h")
async def fetch(ctx: Context, url: str) -> int:
    try:
        page = await download(url)
    except Busy as busy:
        raise RetryAfter(5 * ctx.attempt) from busy
    return len(page)


@app.task("page.clean")
async def clean(ctx: Context) -> None:
    print(f"cleaned by {ctx.task_id}")


clean.cron("30 4 * * *", tz="Europe/Berlin", name="nightly-clean")


async def download(url: str) -> str:
    """A stand-in for a call of an HTTP client."""
    print(f"asked for {url}")
    return f"<h1>{url}</h1>"


async def main() -> None:
    async with app.running():
        handle = await fetch.submit("https://example.org/", key="example.org")
        print(f"{await handle.result(timeout='30s')} characters")


if __name__ == "__main__":
    asyncio.run(main())
