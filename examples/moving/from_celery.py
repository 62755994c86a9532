"""Charges and ships orders, and counts them each night: see docs/moving/from-celery.md.

`python from_celery.py` runs a worker and its client in one process. `holdfast worker
from_celery:app` runs a worker alone; start as many as you like.
"""

import asyncio

from holdfast import Context, Holdfast, Retry

app = Holdfast()
order = app.workflow(
    "shop.order",
    payload=int,
    result=str,
    retry=Retry(max=4, backoff=("10s", "20s", "40s"), retry_on=ConnectionError),
)


@order.stage
def charge(ctx: Context, number: int) -> str:
    return ask_bank(number, ctx.key)


@order.stage
def ship(ctx: Context, number: int) -> str:
    return book_parcel(number, ctx.result_of(charge))


@app.task("shop.count")
def count_orders(ctx: Context) -> None:
    print(f"counted by {ctx.task_id}")


count_orders.cron("0 3 * * *", name="nightly")


def ask_bank(number: int, key: str) -> str:
    """A stand-in: a real bank takes the key, and charges once however often it is asked."""
    print(f"charged {number}, key {key}")
    return f"receipt-{number}"


def book_parcel(number: int, receipt: str) -> str:
    return f"order {number} is on its way, paid with {receipt}"


async def main() -> None:
    async with app.running():
        handle = await order.submit(7, tenant="ann", key="order-7")
        print(await handle.result(timeout="30s"))


if __name__ == "__main__":
    asyncio.run(main())
