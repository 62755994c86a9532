"""Answer a question from a folder of notes: retrieve, prompt, call a model, check, store.

The model is behind any OpenAI-compatible endpoint. Where it is, its key and its name come from the
environment: the key is in no payload, so it is in no store, no log and no answer of the API.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
from pymongo import AsyncMongoClient

from holdfast import Context, Holdfast, Permanent, Retry, RetryAfter
from holdfast.sinks.mongo import Mongo

NOTES = Path(__file__).parent / "notes"
URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8081/v1")
KEY = os.environ.get("OPENAI_API_KEY", "").strip()  # files of secrets end with a new line
MODEL = os.environ.get("OPENAI_MODEL", "small")
CALL_SECONDS = float(os.environ.get("ANSWER_CALL_SECONDS", "30"))
STORE_SECONDS = float(os.environ.get("ANSWER_STORE_SECONDS", "10"))
BACKOFF = tuple(os.environ.get("ANSWER_BACKOFF", "5s,30s,2m").split(","))

SOURCES_MAX = 2
RETRY_AFTER_MAX_SECONDS = 3600
BUSY = {408, 429}  # and all from 500 on: worth another try
SYSTEM = "Answer from the notes below, and name the note that you used in brackets, as in [note]."

database: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
    os.environ.get("MONGODB_URL", "mongodb://127.0.0.1:27017/answers")
)
mongo = Mongo(database.get_default_database("answers"), timeout_seconds=STORE_SECONDS)
app = Holdfast()


@dataclass
class Question:
    text: str


@dataclass
class Answer:
    text: str
    sources: list[str]


@dataclass
class Message:
    role: str
    content: str


@dataclass
class Choice:
    message: Message


@dataclass
class Completion:
    """The part of an endpoint's answer that is read."""

    choices: list[Choice]


class Unfit(Exception):
    """The model said something that must not be stored."""


answer = app.workflow(
    "docs.answer", payload=Question, result=Answer, retry=Retry(max=3, backoff=BACKOFF)
)


def words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))


@answer.stage
def retrieve(ctx: Context, question: Question) -> list[str]:
    """The names of the notes that have most words in common with the question."""
    asked = words(question.text)
    shared = {note.stem: len(asked & words(note.read_text("utf-8"))) for note in NOTES.glob("*.md")}
    found = [
        name for name in sorted(shared, key=lambda name: (-shared[name], name)) if shared[name]
    ]
    if not found:
        raise Permanent("no note has a word of the question")
    return found[:SOURCES_MAX]


@answer.stage
def prompt(ctx: Context, question: Question) -> list[Message]:
    texts = {name: (NOTES / f"{name}.md").read_text("utf-8") for name in ctx.result_of(retrieve)}
    notes = "\n\n".join(f"[{name}]\n{text}" for name, text in texts.items())
    return [Message("system", f"{SYSTEM}\n\n{notes}"), Message("user", question.text)]


async def ask(ctx: Context, messages: list[Message]) -> str:
    """What an endpoint says when it refuses is not repeated: it may have parts of the key."""
    order = {"model": MODEL, "messages": msgspec.to_builtins(messages), "temperature": 0}
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    async with httpx.AsyncClient(timeout=CALL_SECONDS) as client:
        answered = await client.post(f"{URL}/chat/completions", json=order, headers=headers)
    status, wait = answered.status_code, answered.headers.get("retry-after", "")
    if status in BUSY or status >= 500:
        if wait.isdigit():
            raise RetryAfter(min(int(wait), RETRY_AFTER_MAX_SECONDS), f"the endpoint: {status}")
        raise ConnectionError(f"the endpoint: {status}")
    if status != 200:
        raise Permanent(f"the endpoint: {status}")
    choices = msgspec.json.decode(answered.content, type=Completion).choices
    return choices[0].message.content if choices else ""


@answer.stage(timeout="5m")
async def call(ctx: Context, question: Question) -> str:
    return await ask(ctx, ctx.result_of(prompt))


@answer.stage(timeout="5m")
async def check(ctx: Context, question: Question) -> Answer:
    """At a new attempt the model is asked again: what it said first would only fail again."""
    said = ctx.result_of(call) if ctx.attempt == 1 else await ask(ctx, ctx.result_of(prompt))
    cited = [name for name in ctx.result_of(retrieve) if f"[{name}]" in said]
    if not said.strip() or not cited:
        raise Unfit("the answer is empty" if not said.strip() else "the answer cites no source")
    return Answer(said.strip(), cited)


@answer.stage  # while the database is away, this waits: an outage is no failure
async def store(ctx: Context, question: Question) -> Answer:
    """The history has an entry for each task, the summary one for each tenant: the newest answer.
    Both may be written again, by this task or after it; a late one changes neither."""
    found = ctx.result_of(check)
    entry = {"question": question.text, "answer": found.text, "sources": found.sources}
    await mongo.upsert_one("history", entry, key=ctx.key, fence=ctx.fence)
    whose = ctx.tenant or ctx.task_id
    latest = {"latest": found.text, "task": ctx.task_id}
    await mongo.upsert_one("summaries", latest, key=whose, fence=ctx.fence, scope=whose)
    return found
