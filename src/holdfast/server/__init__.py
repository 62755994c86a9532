"""The HTTP service. Needs the extra: pip install 'holdfast-engine[server]'."""

from holdfast.server.api import bare_api, create_api, routes
from holdfast.server.service import Service

__all__ = ["Service", "bare_api", "create_api", "routes"]
