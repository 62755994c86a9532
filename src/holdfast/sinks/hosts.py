"""A host name that no lookup finds is a wrong setting, not an outage.

Drivers pass on the text of a failed lookup, not its error. The number in the text is the system's,
in any language. A lookup that fails temporarily (EAI_AGAIN) is an outage.
"""

from __future__ import annotations

import re
import socket

# The system's numbers are negative on Linux, where no other error has such; elsewhere the words
# tell.
_NUMBER = re.compile(r"\[Errno (-\d+)\]")
_WORDS = re.compile(r"Name or service not known|nodename nor servname provided")


def is_unknown_host(said: str) -> bool:
    """Return whether an error says that a lookup has ended and no such host exists."""
    found = _NUMBER.search(said)
    if found is None:
        return _WORDS.search(said) is not None
    return int(found[1]) != socket.EAI_AGAIN
