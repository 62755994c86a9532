"""A host name that no lookup finds is a wrong setting, not an outage.

Drivers pass on the text of a failed lookup, not its error. The number in the text is the system's,
in any language. A lookup that fails temporarily (EAI_AGAIN) is an outage.
"""

from __future__ import annotations

import re
import socket

# The system's numbers are negative on Linux, where no other error has such; elsewhere the text
# decides.
_NUMBER = re.compile(r"\[Errno (-\d+)\]")
_WORDS = re.compile(r"Name or service not known|nodename nor servname provided")


def is_unknown_host(message: str) -> bool:
    """Return whether an error says that a lookup has ended and no such host exists."""
    number = _NUMBER.search(message)
    if number is None:
        return _WORDS.search(message) is not None
    return int(number[1]) != socket.EAI_AGAIN
