"""Real Redis servers for tests: one, one with Sentinels, a Cluster, one behind TLS.

Each runs on loopback as the present user, in a folder of its own, and dies with its parent.
"""

from holdfast.testing.servers.binary import SERVER_VARIABLE, NoServer, find_server
from holdfast.testing.servers.cluster import Cluster
from holdfast.testing.servers.config import Config
from holdfast.testing.servers.listening import NotStarted
from holdfast.testing.servers.sentinels import Sentinels
from holdfast.testing.servers.server import RedisServer
from holdfast.testing.servers.tls import TlsFront
from holdfast.testing.servers.waiting import NotInTime, until

__all__ = [
    "SERVER_VARIABLE",
    "Cluster",
    "Config",
    "NoServer",
    "NotInTime",
    "NotStarted",
    "RedisServer",
    "Sentinels",
    "TlsFront",
    "find_server",
    "until",
]
