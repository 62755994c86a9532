"""Writes into MongoDB that may be repeated. Needs ``pip install 'holdfast-engine[mongo]'``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import InvalidInput, SinkUnavailable, StaleFence
from holdfast.sinks.fences import (
    FENCES,
    SAID_LIMIT_CHARS,
    FenceGuard,
    check_fields,
    check_key,
    check_place,
    check_timeout,
    guard_of,
    wrong_value,
)
from holdfast.sinks.hosts import is_unknown_host

try:
    import bson
    import pymongo
    from bson.errors import BSONError
    from pymongo import ReadPreference, ReturnDocument, WriteConcern
    from pymongo.errors import (
        ConnectionFailure,
        DuplicateKeyError,
        InvalidName,
        PyMongoError,
        ServerSelectionTimeoutError,
        WriteConcernError,
    )
    from pymongo.read_concern import ReadConcern
except ImportError as error:
    reason = "holdfast.sinks.mongo needs pymongo: pip install 'holdfast-engine[mongo]'"
    raise ImportError(reason, name=error.name) from error

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

TIMEOUT_SECONDS = 10.0
RAISES_MAX = 5
FENCE_FIELD = "holdfastFence"  # of a document that is upserted: who wrote it last

# Of answers that name no class of error: the server stops, starts, elects, or has no room.
PASSING_CODES = frozenset(
    # HostUnreachable, HostNotFound, MaxTimeMSExpired, ShutdownInProgress, WriteConcernFailed,
    # ExceededTimeLimit, NotPrimary…, Interrupted…, OutOfDiskSpace
    {6, 7, 50, 64, 89, 91, 189, 262, 9001, 10107, 11600, 11601, 11602, 13435, 13436, 14031}
    # LockTimeout, WriteConflict, FailedToSatisfyReadPreference (no primary: we ask for no other),
    # ReadConcernMajorityNotAvailableYet, NetworkInterfaceExceededTimeLimit, TemporarilyUnavailable,
    # IngressRequestRateLimitExceeded, IngressOperationRateLimitExceeded
    | {24, 112, 133, 134, 202, 365, 462, 463}
)
# The server says so itself, whatever the code: those of an overload change with its versions.
PASSING_LABELS = ("RetryableWriteError", "RetryableError", "SystemOverloadedError")
# UserNotFound, Unauthorized, AuthenticationFailed, and what Atlas answers for all of them.
REFUSING_CODES = frozenset({11, 13, 18, 8000})
# BadValue, InvalidBSON, DollarPrefixedFieldName, InvalidNamespace, DocumentValidationFailure,
# BSONObjectTooLarge
WRONG_CODES = frozenset({2, 22, 52, 73, 121, 10334})
# The driver has no class of its own for each value that it cannot hand over.
UNKNOWN_VALUES = (BSONError, TypeError, ValueError, OverflowError, RecursionError)


class Mongo:
    """``Mongo(AsyncMongoClient(url)["reports"])``

    Each call ends within ``timeout_seconds``; past it, it is SinkUnavailable. It waits for a server
    to be found for no longer than the client's ``serverSelectionTimeoutMS`` (30 s) allows.
    Writes are acknowledged by a majority, and what was there is on one, whatever the client asks
    for: less could be lost after the task has gone on.
    """

    def __init__(
        self, database: AsyncDatabase[dict[str, Any]], *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._database = database
        self._timeout_seconds = check_timeout(timeout_seconds)

    async def write_once(
        self,
        collection: str,
        doc: dict[str, Any],
        *,
        key: str,
        fence: int | None = None,
        scope: str | None = None,
    ) -> bool:
        """Keep the document under ``_id = key``: True if written now, False if one was there.

        With a fence, StaleFence if its scope (the task, unless named) has seen a higher one.
        """
        fields = check_fields(doc, kind="document")
        if "_id" in fields:
            raise InvalidInput("the document has an _id of its own; its _id is to be the key")
        guard = guard_of(check_key(key), fence, scope)
        into = self._named(collection)
        doc = {"_id": key, **fields}
        with self._reaching(), _handing_over(doc):
            await self._found()
            await self._admit(guard)
            return await _insert(into, doc)

    async def upsert_one(
        self,
        collection: str,
        doc: dict[str, Any],
        *,
        key: str,
        fence: int | None = None,
        scope: str | None = None,
    ) -> None:
        """Set these fields in the document with ``_id = key``, which is made if it is not there.

        The newer write stays: with a fence, StaleFence if one with a higher fence has written the
        document, or if its scope has seen a higher one.
        """
        fields = _settable(check_fields(doc, kind="document"))
        guard = guard_of(check_key(key), fence, scope)
        into = self._named(collection)
        with self._reaching(), _handing_over(fields):
            await self._found()
            await self._admit(guard)
            await _upsert(into, key, fields, guard)

    async def forget(
        self, collection: str, *, key: str, fence: int | None = None, scope: str | None = None
    ) -> None:
        """Remove what was written under the key, if anything was: for undo functions."""
        guard = guard_of(check_key(key), fence, scope)
        out_of = self._named(collection)
        with self._reaching():
            await self._found()
            await self._admit(guard)
            await out_of.delete_one({"_id": key})

    async def _found(self) -> None:
        """Find a server first: within a timeout of its own the driver forgets how long the client
        waits."""
        client = self._database.client
        if not client.topology_description.has_writable_server():
            with pymongo.timeout(
                min(self._timeout_seconds, client.options.server_selection_timeout)
            ):
                await client.admin.command("ping", read_preference=ReadPreference.PRIMARY)

    async def _admit(self, guard: FenceGuard | None) -> None:
        """Raise the scope's fence to this one in a step. Between it and the write that follows
        another may raise it further: MongoDB could join the two in a transaction only, which a
        server alone does not have."""
        if guard is None:
            return
        seen = await self._raised(guard)
        if seen > guard.fence:
            raise StaleFence(guard.scope, guard.fence, seen)

    async def _raised(self, guard: FenceGuard) -> int:
        """The highest one, after this one is counted."""
        fences = self._collection(FENCES)
        for _ in range(RAISES_MAX):
            with suppress(DuplicateKeyError):  # two made it at once; the other's is there now
                found = await fences.find_one_and_update(
                    {"_id": guard.scope},
                    {"$max": {"fence": guard.fence}},
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                )
                if found is not None:
                    return int(found["fence"])
        raise SinkUnavailable(f"the fence of {guard.scope!r} changed under {RAISES_MAX} tries")

    def _named(self, name: object) -> AsyncCollection[dict[str, Any]]:
        if not isinstance(name, str):
            raise InvalidInput(f"a collection is named by text, not {type(name).__name__}")
        try:
            name.encode()
            return self._collection(check_place(name))
        except (InvalidName, UnicodeError) as error:
            raise InvalidInput(f"{name!r} names no collection: {error}") from error

    def _collection(self, name: str) -> AsyncCollection[dict[str, Any]]:
        return self._database.get_collection(
            name,
            write_concern=WriteConcern(w="majority"),
            read_preference=ReadPreference.PRIMARY,
        )

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            with pymongo.timeout(self._timeout_seconds):
                yield
        except PyMongoError as error:
            if self._is_nowhere(error):
                raise InvalidInput(f"MongoDB is not there: {_said(error)}") from error
            if _is_passing(error):
                raise SinkUnavailable(f"MongoDB is out of reach: {_said(error)}") from error
            if getattr(error, "code", None) in REFUSING_CODES:
                raise InvalidInput(f"MongoDB does not let us in: {_said(error)}") from error
            if getattr(error, "code", None) in WRONG_CODES:
                raise wrong_value(None, _said(error)) from error
            raise

    def _is_nowhere(self, error: PyMongoError) -> bool:
        """No lookup finds any of the hosts: their names are wrong."""
        if not isinstance(error, ServerSelectionTimeoutError):
            return False
        known = self._database.client.topology_description.server_descriptions().values()
        return bool(known) and all(is_unknown_host(str(one.error or "")) for one in known)


@contextmanager
def _handing_over(doc: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except UNKNOWN_VALUES as error:
        name = _refused(doc)
        if name is None and not isinstance(error, BSONError):
            raise  # it came from elsewhere
        raise wrong_value(name, error) from error


def _refused(doc: dict[str, Any]) -> str | None:
    """The first field that cannot be handed over by itself."""
    for name, value in doc.items():
        try:
            bson.encode({name: value})
        except UNKNOWN_VALUES:
            return name
    return None


async def _insert(into: AsyncCollection[dict[str, Any]], doc: dict[str, Any]) -> bool:
    """No count is asked for. The index of ``_id`` cannot be absent and takes a value once, so of
    all inserts of a key the server acknowledges one and refuses the others. A repeat that the
    driver itself sends has the number of the first, and is answered as the first was."""
    try:
        await into.insert_one(doc)
    except DuplicateKeyError as error:
        # The driver keeps to itself that no majority has acknowledged what refuses ours.
        kept = into.with_options(read_concern=ReadConcern("majority"))
        if await kept.find_one({"_id": doc["_id"]}, {"_id": 1}) is not None:
            return False
        if _is_of_the_key(error):
            raise SinkUnavailable(f"no majority has {doc['_id']!r} yet: {_said(error)}") from error
        raise  # another unique index refuses with the same error
    return True


async def _upsert(
    into: AsyncCollection[dict[str, Any]],
    key: str,
    fields: dict[str, Any],
    guard: FenceGuard | None,
) -> None:
    """Upsert in one step: a document that has a higher fence does not match, and the insert that is
    tried in its place meets its key."""
    where: dict[str, Any] = {"_id": key}
    if guard is not None:
        at_most = {FENCE_FIELD: {"$lte": guard.fence}}
        where["$or"] = [at_most, {FENCE_FIELD: {"$exists": False}}]
        fields = {**fields, FENCE_FIELD: guard.fence}
    for _ in range(RAISES_MAX):
        try:
            change = {"$set": fields} if fields else {"$setOnInsert": {"_id": key}}
            await into.update_one(where, change, upsert=True)
        except DuplicateKeyError as error:
            found = await into.find_one({"_id": key}, {FENCE_FIELD: 1})
            if found is None and not _is_of_the_key(error):
                raise  # another unique index refuses with the same error
            seen = int((found or {}).get(FENCE_FIELD, 0))
            if guard is not None and seen > guard.fence:
                raise StaleFence(guard.scope, guard.fence, seen) from error
            continue  # two made it at once: the other's is there now
        return
    raise SinkUnavailable(f"the document {key!r} changed under {RAISES_MAX} tries")


def _settable(fields: dict[str, Any]) -> dict[str, Any]:
    """Escape names for an update, where a dot makes a path, and a dollar an operator."""
    for name in fields:
        if name in ("_id", FENCE_FIELD):
            raise InvalidInput(f"the field {name} is the sink's own")
        if "." in name or name.startswith("$") or "\0" in name:
            raise InvalidInput(f"{name!r} names no field that can be set: no dot, no $ before it")
    return fields


def _is_of_the_key(error: DuplicateKeyError) -> bool:
    return (error.details or {}).get("keyPattern") == {"_id": 1}


def _is_passing(error: PyMongoError) -> bool:
    """A repeat is safe after any of these, written or not: the key is the same."""
    return (
        isinstance(error, ConnectionFailure | WriteConcernError)
        or error.timeout
        or any(error.has_error_label(label) for label in PASSING_LABELS)
        or getattr(error, "code", None) in PASSING_CODES
    )


def _said(error: PyMongoError) -> str:
    """Format an error without the driver's picture of all servers, which is in the cause."""
    said = str(error).partition(", Timeout: ")[0]
    return f"{type(error).__name__}: {said}"[:SAID_LIMIT_CHARS]
