"""Webhooks are signed and verified here, by the Standard Webhooks scheme."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Mapping

from holdfast.domain.errors import InvalidInput

PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
TOLERANCE_SECONDS = 300.0

_ID = re.compile(r"[!-\-/-~]{1,256}")  # printable, and no dot: it divides what is signed
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class BadSignature(ValueError):
    """The message must not be trusted: somebody else sent it, or it was changed, or it is old."""

    stored_name = "BadSignature"


class Secret:
    """The key of a signature; its repr hides it, and msgspec cannot write it."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def parse(cls, text: str) -> Secret:
        """Parse ``whsec_`` and the base64 of 24 to 64 random bytes."""
        try:
            key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not text.startswith(PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
            raise InvalidInput(
                f"a webhook's secret is {PREFIX} and the base64 of {KEY_BYTES_MIN} to "
                f"{KEY_BYTES_MAX} random bytes; this one (not shown) is not"
            )
        return cls(key)

    @staticmethod
    def make() -> str:
        """Return the text of a new secret."""
        return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()

    def derive(self, tenant: str | None) -> Secret:
        """Return the tenant's own secret; it does not reveal this one."""
        label = "no tenant" if tenant is None else f"tenant {tenant}"
        return Secret(hmac.digest(self._key, label.encode(), "sha256"))

    def text(self) -> str:
        """Return the secret as text, to be given to a receiver."""
        return PREFIX + base64.b64encode(self._key).decode()

    def digest(self, signed: bytes) -> str:
        return base64.b64encode(hmac.new(self._key, signed, hashlib.sha256).digest()).decode()

    def __repr__(self) -> str:
        return "Secret(***)"


def sign(known: Iterable[Secret], id: str, timestamp: int, body: bytes) -> str:
    """Return the ``webhook-signature`` header: one signature for each secret."""
    if not _ID.fullmatch(id):
        raise InvalidInput(f"{id!r} is not the id of a message: use printable ASCII without dots")
    signed = _signed_content(id, str(int(timestamp)), body)
    signatures = " ".join(f"v1,{secret.digest(signed)}" for secret in known)
    if not signatures:
        raise InvalidInput("a message needs one secret at least")
    return signatures


def verify(
    secret: Secret | str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float | None = None,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> None:
    """Verify a message in a receiver, with the body exactly as it arrived; raise BadSignature if it
    is wrong.

    A valid message may still be a second copy: remember its ``webhook-id``.
    """
    given = {name.lower(): value for name, value in headers.items()}
    id, timestamp, signatures = (
        given.get(f"webhook-{part}", "") for part in ("id", "timestamp", "signature")
    )
    if not _ID.fullmatch(id) or not _TIMESTAMP.fullmatch(timestamp) or not signatures:
        raise BadSignature("the webhook-id, -timestamp or -signature header is missing or wrong")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance_seconds:
        raise BadSignature(f"the message's time is more than {tolerance_seconds:g} s away from now")
    known = secret if isinstance(secret, Secret) else Secret.parse(secret)
    expected = f"v1,{known.digest(_signed_content(id, timestamp, body))}".encode()
    received = signatures.encode(errors="replace").split(b" ")
    if not any(hmac.compare_digest(expected, signature) for signature in received):
        raise BadSignature("no signature of the message was made with this secret")


def _signed_content(id: str, timestamp: str, body: bytes) -> bytes:
    return f"{id}.{timestamp}.".encode() + body
