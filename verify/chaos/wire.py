"""The process that runs a proxy in front of the store's server and disturbs connections.

It keeps pace with the kills, so that all kinds of harm meet.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from verify.chaos.round_plan import RoundPlan
from verify.proxy import REPLIES_LOST, Harm, Proxy

HOST = "127.0.0.1"
POLL_SECONDS = (0.01, 0.06)
DELAY_SECONDS = (0.05, 0.8)  # some replies come after the client has given up
ORPHANED_EXIT = 4

# The amount of each harm per lost reply. Most connections are cut with the reply; some stay
# open and silent.
PER_LOST_REPLY = {
    Harm.LOSE: 0.6,
    Harm.TEAR: 0.2,
    Harm.MUTE: 0.2,
    Harm.CUT: 0.5,
    Harm.DEAF: 0.2,
    Harm.DELAY: 0.5,
}


def harms_for(lost_replies: int) -> dict[Harm, int]:
    if not lost_replies:
        return {}
    harms = {harm: math.floor(share * lost_replies) for harm, share in PER_LOST_REPLY.items()}
    harms[Harm.LOSE] += lost_replies - sum(harms[harm] for harm in REPLIES_LOST)
    return harms


def is_done(plan: RoundPlan, dealt: Mapping[Harm, int]) -> bool:
    return all(dealt.get(harm, 0) >= planned for harm, planned in plan.wire.items())


class FaultyWire:
    """The listening socket of the proxy. The parent opens it, so that its port is known before the
    process that serves it has started."""

    def __init__(self, store: str) -> None:
        self._target = urlsplit(store)
        self._listen = socket.create_server((HOST, 0), backlog=128)

    @property
    def url(self) -> str:
        port = self._listen.getsockname()[1]
        return self._target._replace(netloc=f"{HOST}:{port}").geturl()

    def close(self) -> None:
        """Close the socket in the parent once the process has started, so that later children do
        not inherit it."""
        self._listen.close()

    async def serve(self, plan: RoundPlan, name: str) -> None:
        """Serve until the process is killed."""
        parent, chance = os.getppid(), random.Random(f"{plan.seed} {name}")
        host, port = self._target.hostname or HOST, self._target.port
        assert port is not None
        async with Proxy(
            host, port, listen=self._listen, chance=chance, delay_seconds=DELAY_SECONDS
        ) as proxy:
            while os.getppid() == parent:
                _keep_pace(plan, proxy)
                plan.dealt.set(proxy.dealt)
                await asyncio.sleep(chance.uniform(*POLL_SECONDS))
            os._exit(ORPHANED_EXIT)


def _keep_pace(plan: RoundPlan, proxy: Proxy) -> None:
    share = plan.harm.read()
    for harm, planned in plan.wire.items():
        if not proxy.wanted[harm] and proxy.dealt[harm] < planned * share:
            proxy.deal(harm)
