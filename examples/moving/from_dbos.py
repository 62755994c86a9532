"""Reserves a seat, takes the money and confirms: the program of docs/moving/from-dbos.md.

`python from_dbos.py` runs a worker and its client in one process. `holdfast worker
from_dbos:app` runs a worker alone; start as many as you like.
"""

import asyncio
from dataclasses import dataclass

from holdfast import Context, Holdfast, Retry

app = Holdfast()


@dataclass
class Booking:
    guest: str
    seat: str


booking = app.workflow("booking", payload=Booking, result=str, queue="bookings")


@booking.stage
def reserve(ctx: Context, order: Booking) -> str:
    return hold_seat(order.seat, ctx.key)


@reserve.undo
def release(ctx: Context, order: Booking) -> None:
    free_seat(order.seat, ctx.key)


@booking.stage(retry=Retry(max=3, backoff=("1s", "2s")))
def pay(ctx: Context, order: Booking) -> str:
    return take_money(order.guest, ctx.key)


@booking.stage
def confirm(ctx: Context, order: Booking) -> str:
    return f"{order.guest} has {ctx.result_of(reserve)}, {ctx.result_of(pay)}"


def hold_seat(seat: str, key: str) -> str:
    print(f"held {seat}, key {key}")
    return f"seat {seat}"


def free_seat(seat: str, key: str) -> None:
    print(f"freed {seat}, key {key}")


def take_money(guest: str, key: str) -> str:
    """A stand-in: the other side takes the key, and charges once however often it is asked."""
    print(f"charged {guest}, key {key}")
    return "paid"


async def main() -> None:
    async with app.running(slots=5, queues=("bookings",)):
        handle = await booking.submit(Booking("ann", "12a"), tenant="ann", key="booking-12a")
        print(await handle.result(timeout="30s"))


if __name__ == "__main__":
    asyncio.run(main())
