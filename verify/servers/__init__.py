"""Real Redis servers for tests: one, one with Sentinels, a Cluster, one behind TLS.

Each runs on loopback as the present user, in a folder of its own, and dies with its parent.
"""

from verify.servers.binary import SERVER_VARIABLE, NoServer, find_server
from verify.servers.cluster import Cluster
from verify.servers.config import Config
from verify.servers.poll import NotInTime, until
from verify.servers.process import NotStarted
from verify.servers.sentinels import Sentinels
from verify.servers.server import RedisServer
from verify.servers.tls import TlsFront

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
