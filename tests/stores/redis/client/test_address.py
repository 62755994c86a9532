from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.errors import InvalidSetting
from holdfast.stores.redis.client.address import SCHEMES, AddressKind, parse, redact_url

SECRETS = ["s3cret", "t0ken"]


@pytest.fixture(autouse=True)
def _patience_with_redis() -> None:
    """The settings as they come."""


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("redis://h", {"kind": AddressKind.SINGLE, "hosts": (("h", 6379),), "db": 0, "tls": False}),
    ("redis://h:1/3", {"hosts": (("h", 1),), "db": 3, "shown": "redis://h:1/3"}),
    ("redis://h/", {"db": 0}),
    ("redis://[::1]:7000", {"hosts": (("::1", 7000),), "shown": "redis://[::1]:7000"}),
    ("redis://:s3cret@h", {"user": None, "password": "s3cret", "shown": "redis://h:6379"}),
    ("redis://me:s3cret@h", {"user": "me", "password": "s3cret"}),
    ("redis://me:a%40b%3Ac%2F@h", {"password": "a@b:c/"}),
    ("redis://me:a:b@h", {"password": "a:b"}),
    ("redis://h?timeout=2m", {"timeout_seconds": 120.0, "shown": "redis://h:6379?timeout=2m"}),
    ("redis://h", {"timeout_seconds": 5.0, "partitions": 1}),
    ("rediss://h", {"tls": True, "insecure": False}),
    ("rediss://h?verify=insecure", {"insecure": True}),
    (
        "redis+sentinel://me:s3cret@a,b:1/main",
        {
            "kind": AddressKind.SENTINEL,
            "hosts": (("a", 26379), ("b", 1)),
            "name": "main",
            "db": 0,
            "shown": "redis+sentinel://a:26379,b:1/main",
        },
    ),
    ("redis+sentinel://a/main/2", {"name": "main", "db": 2}),
    (
        "rediss+sentinel://a/main?sentinel_user=t0ken&sentinel_password=s3cret",
        {"tls": True, "sentinel_user": "t0ken", "sentinel_password": "s3cret"},
    ),
    (
        "redis+cluster://a:1,b:2",
        {
            "kind": AddressKind.CLUSTER,
            "hosts": (("a", 1), ("b", 2)),
            "partitions": 16,
            "clustered": True,
        },
    ),
    ("redis+cluster://a?partitions=1024", {"partitions": 1024}),
    ("rediss+cluster://a/", {"tls": True}),
]

BAD = [
    ("redis://", "a host is missing"),
    ("redis://h:0", "not a port"),
    ("redis://h:65536", "not a port"),
    ("redis://h:x", "not HOST or HOST:PORT"),
    ("redis://[::1", "not HOST or HOST:PORT"),
    ("redis://h o", "not HOST or HOST:PORT"),
    ("redis://a,b", r"redis\+sentinel:// or redis\+cluster://"),
    ("redis://h/x", "not the number of a database"),
    ("redis://h/-1", "not the number of a database"),
    ("redis://h/1/2", "not the number of a database"),
    ("redis://t0ken@h", "USER:PASSWORD"),
    ("redis://me:s3cret/t0ken@h", "%2F"),
    ("redis://me:s3cret?t0ken@h", "host|HOST|setting"),
    ("redis://me:s3cret#t0ken@h", "%23"),
    ("redis://me:s3cret@t0ken@h", "%40"),
    ("redis://h?foo=1", "no setting foo here; known: straight, timeout$"),
    ("redis://h?password=s3cret", "no setting password here; known: straight, timeout"),
    ("redis://h?password=s3cret&t0ken", "no setting password here"),
    ("redis+sentinel://h/m?sentinel_password=s3cret&t0ken", "no such setting"),
    ("redis://h?partitions=2", "known: straight, timeout"),
    ("redis://h?ca=x", "known: straight, timeout"),
    ("redis://h?timeout=soon", "not a duration"),
    ("redis://h?timeout=0", "between"),
    ("redis://h?timeout=1h", "between"),
    ("redis://h?timeout=", "a value"),
    ("redis://h?timeout=1&timeout=2", "once"),
    ("rediss://h?verify=none", "verify=insecure"),
    ("rediss://h?ca=not-there.pem", "no file not-there.pem"),
    ("redis+sentinel://h", "/NAME"),
    ("redis+sentinel://h/main/x", "not the number"),
    ("redis+sentinel://h,/main", "a host is missing"),
    ("redis+sentinel://h/main?sentinel_user=me", "sentinel_password="),
    ("redis+cluster://h/0", "only one database"),
    ("redis+cluster://h?partitions=0", "1 to 1024"),
    ("redis+cluster://h?partitions=1025", "1 to 1024"),
    ("redis+cluster://h?partitions=many", "1 to 1024"),
    ("unix:///tmp/redis.sock", "write redis://"),
]


@pytest.mark.parametrize(("url", "parts"), GOOD)
def test_a_url_says_where_the_servers_are(url: str, parts: dict[str, Any]) -> None:
    address = parse(url)
    assert {name: getattr(address, name) for name in parts} == parts


@pytest.mark.parametrize(("url", "told"), BAD)
def test_a_wrong_url_is_refused_with_what_to_write(url: str, told: str) -> None:
    with pytest.raises(InvalidSetting, match=told) as refused:
        parse(url)
    assert refused.value.name == "HOLDFAST_STORE"
    assert not any(secret in str(refused.value) for secret in SECRETS)


@pytest.mark.parametrize("scheme", [*SCHEMES, "other"])
@pytest.mark.parametrize(
    "rest",
    [
        "me:s3cret@h:1/t",
        ":s3cret@h",
        "me:s3cret/t0ken@h",
        "me:s3cret?t0ken@h",
        "me:s3cret#t0ken@h",
        "h/main?sentinel_password=s3cret&timeout=5s",
        "h/main?sentinel_password=s3cret@t0ken",
        "h/main?sentinel_password=s3cret&t0ken",
        "h/main?password=s3cret",
    ],
)
def test_no_secret_is_ever_shown(scheme: str, rest: str) -> None:
    url = f"{scheme}://{rest}"
    texts = [redact_url(url)]
    try:
        address = parse(url)
        texts += [address.shown, repr(address), str(address)]
    except InvalidSetting as refused:
        texts.append(str(refused))
    assert not any(secret in text for secret in SECRETS for text in texts)


def test_a_client_certificate_needs_its_files(tmp_path: Path) -> None:
    pem = tmp_path / "all.pem"
    pem.write_text("")
    address = parse(f"rediss://h?ca={pem}&cert={pem}&key={pem}")
    assert (address.ca, address.cert, address.key) == (str(pem),) * 3
    with pytest.raises(InvalidSetting, match="cert="):
        parse(f"rediss://h?key={pem}")
