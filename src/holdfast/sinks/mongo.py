"""The sink for MongoDB makes writes that may be repeated. It needs ``holdfast-engine[mongo]``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import InvalidInput, SinkUnavailable, StaleFence
from holdfast.sinks.fences import (
    FENCES,
    MESSAGE_LIMIT_CHARS,
    TIMEOUT_SECONDS,
    FenceGuard,
    check_fields,
    check_place,
    check_timeout,
    find_wrong_value,
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

RAISES_MAX = 5
FENCE_FIELD = "holdfastFence"  # in an upserted document: the fence of its last write

# These errors pass, and have no class: the server stops, starts, elects, or has no room.
PASSING_CODES = frozenset(
    # HostUnreachable, HostNotFound, MaxTimeMSExpired, ShutdownInProgress, WriteConcernFailed,
    # ExceededTimeLimit, NotPrimary…, Interrupted…, OutOfDiskSpace
    {6, 7, 50, 64, 89, 91, 189, 262, 9001, 10107, 11600, 11601, 11602, 13435, 13436, 14031}
    # LockTimeout, WriteConflict, FailedToSatisfyReadPreference (no primary: we accept no other),
    # ReadConcernMajorityNotAvailableYet, NetworkInterfaceExceededTimeLimit, TemporarilyUnavailable,
    # IngressRequestRateLimitExceeded, IngressOperationRateLimitExceeded
    | {24, 112, 133, 134, 202, 365, 462, 463}
)
# The server marks an error that passes, whatever its code: those of an overload change with its
# versions.
PASSING_LABELS = ("RetryableWriteError", "RetryableError", "SystemOverloadedError")
# UserNotFound, Unauthorized, AuthenticationFailed, and what Atlas answers for all of them.
REFUSING_CODES = frozenset({11, 13, 18, 8000})
# BadValue, InvalidBSON, DollarPrefixedFieldName, InvalidNamespace, DocumentValidationFailure,
# BSONObjectTooLarge
WRONG_CODES = frozenset({2, 22, 52, 73, 121, 10334})
# The driver has no class of its own for each value that it cannot hand over.
UNKNOWN_VALUES = (BSONError, TypeError, ValueError, OverflowError, RecursionError)


class Mongo:
    """A sink on a database: ``Mongo(AsyncMongoClient(url)["reports"])``.

    Each call ends within ``timeout_seconds``; after that it raises SinkUnavailable. It waits for a
    server no longer than the client's ``serverSelectionTimeoutMS`` (30 s) allows. A majority
    acknowledges each write, and reads see what a majority has, whatever the client is set to:
    anything less could be lost after the task has continued.
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
        """Store the document under ``_id = key``; return True if it was written now, False if it
        existed.

        With a fence, raise StaleFence if the scope (the task by default) has seen a higher one.
        """
        fields = check_fields(doc, kind="document")
        if "_id" in fields:
            raise InvalidInput("the document must not contain an _id; the key becomes its _id")
        guard = guard_of(key, fence, scope)
        doc = {"_id": key, **fields}
        async with self._admitted_collection(collection, guard, doc) as into:
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
        """Set these fields in the document with ``_id = key``, which is created if it does not
        exist.

        The newer write stays: with a fence, raise StaleFence if a write with a higher fence has
        changed the document, or if the scope has seen a higher one.
        """
        fields = _settable(check_fields(doc, kind="document"))
        guard = guard_of(key, fence, scope)
        async with self._admitted_collection(collection, guard, fields) as into:
            await _upsert(into, key, fields, guard)

    async def forget(
        self, collection: str, *, key: str, fence: int | None = None, scope: str | None = None
    ) -> None:
        """Remove the document under the key, if there is one: for undo functions."""
        guard = guard_of(key, fence, scope)
        async with self._admitted_collection(collection, guard, {"_id": key}) as out_of:
            await out_of.delete_one({"_id": key})

    @asynccontextmanager
    async def _admitted_collection(
        self, name: object, guard: FenceGuard | None, doc: dict[str, Any]
    ) -> AsyncIterator[AsyncCollection[dict[str, Any]]]:
        """Yield the collection once a server is found and the guard admitted; translate errors."""
        collection = self._checked_collection(name)
        with self._translated_errors(), _checked_values(doc):
            await self._find_server()
            await self._admit(guard)
            yield collection

    async def _find_server(self) -> None:
        """Find a server first: within a timeout of its own the driver ignores how long the client
        waits for one.
        """
        client = self._database.client
        if not client.topology_description.has_writable_server():
            with pymongo.timeout(
                min(self._timeout_seconds, client.options.server_selection_timeout)
            ):
                await client.admin.command("ping", read_preference=ReadPreference.PRIMARY)

    async def _admit(self, guard: FenceGuard | None) -> None:
        """Raise the scope's fence to this one in one step.

        Between this step and the write, another holder may raise it further. MongoDB could join the
        two only in a transaction, which a single server does not have.
        """
        if guard is None:
            return
        fences = self._collection(FENCES)
        for _ in range(RAISES_MAX):
            with suppress(DuplicateKeyError):  # two made it at once; the other's is there now
                highest = await fences.find_one_and_update(
                    {"_id": guard.scope},
                    {"$max": {"fence": guard.fence}},
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                )
                if highest is not None:
                    guard.check(int(highest["fence"]))
                    return
        raise SinkUnavailable(f"the fence of {guard.scope!r} changed during {RAISES_MAX} attempts")

    def _checked_collection(self, name: object) -> AsyncCollection[dict[str, Any]]:
        if not isinstance(name, str):
            raise InvalidInput(f"a collection is named by text, not {type(name).__name__}")
        try:
            name.encode()
            return self._collection(check_place(name))
        except (InvalidName, UnicodeError) as error:
            raise InvalidInput(f"{name!r} cannot name a collection: {error}") from error

    def _collection(self, name: str) -> AsyncCollection[dict[str, Any]]:
        return self._database.get_collection(
            name, write_concern=WriteConcern(w="majority"), read_preference=ReadPreference.PRIMARY
        )

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            with pymongo.timeout(self._timeout_seconds):
                yield
        except PyMongoError as error:
            if self._is_nowhere(error):
                raise InvalidInput(f"no host of MongoDB exists: {_message(error)}") from error
            if _is_passing(error):
                raise SinkUnavailable(f"MongoDB is out of reach: {_message(error)}") from error
            if getattr(error, "code", None) in REFUSING_CODES:
                raise InvalidInput(f"MongoDB refuses access: {_message(error)}") from error
            if getattr(error, "code", None) in WRONG_CODES:
                raise wrong_value(None, _message(error)) from error
            raise

    def _is_nowhere(self, error: PyMongoError) -> bool:
        """Return whether no lookup finds any of the hosts: then their names are wrong."""
        if not isinstance(error, ServerSelectionTimeoutError):
            return False
        servers = self._database.client.topology_description.server_descriptions().values()
        return bool(servers) and all(is_unknown_host(str(s.error or "")) for s in servers)


@contextmanager
def _checked_values(doc: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except UNKNOWN_VALUES as error:
        name = find_wrong_value(doc, lambda name, value: bson.encode({name: value}), UNKNOWN_VALUES)
        if name is None and not isinstance(error, BSONError):
            raise  # it came from elsewhere
        raise wrong_value(name, error) from error


async def _insert(into: AsyncCollection[dict[str, Any]], doc: dict[str, Any]) -> bool:
    """Insert the document once; return False if it existed.

    The index of ``_id`` always exists and accepts a value once. So the server acknowledges one of
    all inserts of a key and refuses the others. A repeat that the driver sends itself has the
    number of the first and gets the first one's answer.
    """
    try:
        await into.insert_one(doc)
    except DuplicateKeyError as error:
        # The driver keeps to itself that no majority has acknowledged what refuses ours.
        kept = into.with_options(read_concern=ReadConcern("majority"))
        if await kept.find_one({"_id": doc["_id"]}, {"_id": 1}) is not None:
            return False
        if _is_of_the_key(error):
            raise SinkUnavailable(
                f"no majority has {doc['_id']!r} yet: {_message(error)}"
            ) from error
        raise  # another unique index refuses with the same error
    return True


async def _upsert(
    into: AsyncCollection[dict[str, Any]],
    key: str,
    fields: dict[str, Any],
    guard: FenceGuard | None,
) -> None:
    """Update or insert the document in one step.

    A document with a higher fence does not match, and the insert that is tried instead meets its
    key.
    """
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
    raise SinkUnavailable(f"the document {key!r} changed during {RAISES_MAX} attempts")


def _settable(fields: dict[str, Any]) -> dict[str, Any]:
    """Refuse names that an update would read as a path (a dot) or an operator (a dollar)."""
    for name in fields:
        if name in ("_id", FENCE_FIELD):
            raise InvalidInput(f"the field {name} is the sink's own")
        if "." in name or name.startswith("$") or "\0" in name:
            raise InvalidInput(f"the field {name!r} cannot be set: use no dot and no leading $")
    return fields


def _is_of_the_key(error: DuplicateKeyError) -> bool:
    return (error.details or {}).get("keyPattern") == {"_id": 1}


def _is_passing(error: PyMongoError) -> bool:
    """Return whether the error passes. A repeat is safe, written or not: the key is the same."""
    return (
        isinstance(error, ConnectionFailure | WriteConcernError)
        or error.timeout
        or any(error.has_error_label(label) for label in PASSING_LABELS)
        or getattr(error, "code", None) in PASSING_CODES
    )


def _message(error: PyMongoError) -> str:
    """Return the error's text without the driver's description of all servers, which is in the
    cause.
    """
    text = str(error).partition(", Timeout: ")[0]
    return f"{type(error).__name__}: {text}"[:MESSAGE_LIMIT_CHARS]
