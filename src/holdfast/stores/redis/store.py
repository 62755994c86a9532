"""The Redis store: makes the client and hands the partitions to the five parts.

A single server or Sentinel has one partition, a Cluster has many (`partition.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.domain import names
from holdfast.ports import Check, Clock, Topic
from holdfast.stores.redis.admin.store import RedisAdmin
from holdfast.stores.redis.client import address, checks, format
from holdfast.stores.redis.client.bell import Bells
from holdfast.stores.redis.client.client import RedisClient
from holdfast.stores.redis.keys import KeyNames, prefixes
from holdfast.stores.redis.partition import Partition, Partitions, RetentionTerms, Time
from holdfast.stores.redis.plans.store import RedisPlans
from holdfast.stores.redis.repair.torn_writes import Mender
from holdfast.stores.redis.tasks.claims import Claims
from holdfast.stores.redis.tasks.store import RedisTasks
from holdfast.stores.redis.triggers.store import RedisTriggers
from holdfast.stores.redis.views.store import RedisViews
from holdfast.stores.signals import Signals

log = logging.getLogger("holdfast.stores.redis.store")


class RedisStore:
    """A store on Redis.

    With ``must_exist`` it is an error if there is no store at the address. A test may pass its own
    clock as ``time``, which then replaces the server's.
    """

    durable = False  # until the settings are checked
    file = None

    def __init__(
        self,
        url: str,
        clock: Clock,
        namespace: str = "executor",
        *,
        terms: RetentionTerms | None = None,
        time: Time | None = None,
        must_exist: bool = False,
    ) -> None:
        self._namespace = names.check("namespace", namespace)
        self._must_exist = must_exist
        self._address = address.parse(url)
        self.url = self._address.shown
        self._clock = clock
        self._client = RedisClient(self._address)
        clustered = self._address.clustered
        self._keys = [
            KeyNames(prefix)
            for prefix in prefixes(namespace, self._address.partitions, clustered=clustered)
        ]
        self._parts = Partitions(
            [
                Partition(self._client, k, terms or RetentionTerms(), time, clock.steady)
                for k in self._keys
            ]
        )
        for part in self._parts:
            part.partitions = len(self._parts)
        self._mender = Mender(self._parts)
        claims = Claims(self._parts, clock)
        self.tasks = RedisTasks(self._parts, claims, self._mender, url=self.url)
        self.views = RedisViews(self._parts)
        self.admin = RedisAdmin(self._parts, self._check_settings)
        self.plans = RedisPlans(self._parts)
        self.triggers = RedisTriggers(self._parts)
        self._signals = Signals(clock)
        self.ticket = self._signals.ticket
        self._bells = Bells(self._client, self._keys, self._signals.notify)

    async def open(self) -> None:
        await self._client.open()
        try:
            checked = await self._check_settings()
            await format.make_ours(self._parts, self._namespace, must_exist=self._must_exist)
            for part in self._parts:
                await part.refresh_time()
            await self._bells.open()
        except BaseException:
            await self._client.close()
            raise
        for check in checked:
            if not check.good:
                log.warning("%s: %s: %s", self.url, check.name, check.message)

    async def close(self) -> None:
        await self._mender.close()
        await self._bells.close()
        await self._client.close()

    async def detach(self) -> None:
        await self._client.detach()

    async def _check_settings(self) -> Sequence[Check]:
        checked = await checks.run_checks(self._client, self._keys, self._clock)
        self.durable = checks.is_durable(checked)
        return checked

    def partitioned_id(self, name: str, *, tenant: str | None, key: str | None) -> str:
        return self._parts.partitioned_id(name, tenant=tenant, key=key)

    def colocated_id(self, name: str, *, task_id: str = "", plan_id: str = "") -> str:
        of_plan, with_id = self._parts.of_plan, self._parts.with_id
        return self._parts.colocated_id(name, of_plan(plan_id) if plan_id else with_id(task_id))

    def trigger_id(self, name: str, *, tenant: str | None) -> str:
        if self._parts.of_trigger(name) is not None:
            return name
        return self._parts.partitioned_id(name, tenant=tenant, key=None)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        self._bells.listen()
        await self._signals.wait(topic, ticket, timeout=timeout)
