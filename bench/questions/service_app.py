"""The app that the benchmark serves: one type of task, which does nothing."""

from __future__ import annotations

from holdfast import Context, Holdfast

TYPE = "bench.noop"

app = Holdfast()


@app.task(TYPE)
async def noop(_: Context, __: int) -> None: ...
