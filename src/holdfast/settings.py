"""Settings: `HOLDFAST_…` in the environment, or the same names in a TOML file."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from holdfast.domain import names
from holdfast.domain.durations import seconds
from holdfast.domain.errors import InvalidInput, InvalidSetting

PREFIX = "HOLDFAST_"
NAMED_BEFORE = "_HOLDFAST_NAMED"  # misspelt variables that a parent process has named
BESIDE = ("config", "debug", "promtool", "redis_server")  # read elsewhere

HIDDEN = "…"  # what an error shows of a secret

log = logging.getLogger("holdfast.settings")

_HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_NUMBER = re.compile("-?[0-9]{1,15}")


def _duration(value: Any) -> float:
    try:
        return seconds(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _words(value: Any) -> Any:
    """Split words, which the environment separates by commas."""
    if isinstance(value, str):
        return tuple(word for word in map(str.strip, value.split(",")) if word)
    return value


def _limits(value: Any) -> Any:
    """Parse limits, in the environment `default=1000,mail=5000`; `*` is every other queue."""
    if not isinstance(value, str):
        return value
    limits = dict[str, int]()
    for word in _words(value):
        name, _, limit = map(str.strip, word.rpartition("="))
        if not name or _NUMBER.fullmatch(limit) is None:
            raise ValueError(f"{word!r} is not QUEUE=NUMBER: write it as default=1000,*=10000")
        limits[name] = int(limit)
    return limits


Duration = Annotated[float, BeforeValidator(_duration)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Limits = Annotated[dict[str, int], NoDecode, BeforeValidator(_limits)]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    store: str = "sqlite:///holdfast.db"
    namespace: str = "executor"
    fallback: Literal["none", "memory"] = "none"
    lease: Duration = Field(default=30.0, ge=0.1, le=3600)
    slots: int = Field(default=128, ge=1, le=10_000)
    queues: str = "default"  # comma-separated, in order of preference
    drain: Duration = 30.0
    stage_timeout: Duration = Field(default=9000.0, gt=0)
    checkpoint_ttl: Duration = Field(default=7 * 86_400.0, gt=0)
    tenant_lock: Duration = 9000.0  # of a lock's key in Redis, from its last renewal
    keep: Duration = 30 * 86_400.0
    audit_keep: Duration = 365 * 86_400.0
    reconcile: Duration = 3600.0  # how often the workers compare and mend a Redis store; 0: never
    payload_limit: int = Field(default=1024 * 1024, ge=1)  # bytes of JSON
    queue_limit: int = Field(default=1_000_000, ge=1)  # waiting tasks per queue
    crash_limit: int = Field(default=3, ge=1)
    unknown_type_after: Duration = 600.0
    outage: Duration = 86_400.0  # a row of outages of a stage that is longer suspends the task

    backlog: Limits = Field(default={"*": 10_000})  # waiting tasks of a queue that raise an alert
    log: Literal["console", "json"] = "console"
    tracing: bool = False  # OpenTelemetry spans, through whatever exporter is set up
    redact: Words = ()  # fields to hide beside the usual ones; * for any part: "ssn,*_pin"
    redact_patterns: tuple[str, ...] = ()  # regular expressions of text to hide; a JSON list

    webhooks: Path | None = None  # the file of hooks and their secrets
    deliveries: bool = True  # False: this process sends none, others do
    webhook_timeout: Duration = Field(default=10.0, gt=0, le=30)  # for one attempt, all in all
    webhook_allow: Words = ()  # hosts and networks: plain http and private addresses are good there
    callback_allow: Words = ()  # the same for callbacks, whose URLs come with requests

    # The settings of integrations, which nobody else reads.
    telegram_token: SecretStr | None = None  # of the bot
    telegram_secret: SecretStr | None = None  # which comes with each request to the webhook
    telegram_task: str | None = None  # the task type that gets the messages
    telegram_api: str = "https://api.telegram.org"

    tokens: Path | None = None  # the file of `holdfast tokens`
    rate_limit: float = Field(default=2000.0, gt=0)  # requests a second of one token
    body_limit: int = Field(default=8 * 1024 * 1024, ge=1024)  # bytes of a request
    hosts: Words = ()  # names that a Host header may have; *.example.com for all below it
    stop_delay: Duration = Field(default=5.0, ge=0, le=600)  # from SIGTERM until it stops
    wait_limit: int = Field(default=400, ge=1)  # requests of one token that wait for results
    connection_limit: int = Field(default=2000, ge=16, le=30_000)  # of one process
    address_limit: int | None = Field(default=None, ge=1)  # of one address; None: a quarter
    trusted_proxies: Words = ()  # addresses and networks that have no address limit
    pool_limit: int = Field(default=32, ge=1, le=1000)  # worker processes that a service starts

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str) -> str:
        return _check_name("namespace", value)

    @field_validator("queues")
    @classmethod
    def _queues(cls, value: str) -> str:
        return ",".join(_check_name("queue", name.strip()) for name in value.split(","))

    @field_validator("tenant_lock")
    @classmethod
    def _tenant_lock(cls, value: float, info: ValidationInfo) -> float:
        """Check that the lock of a tenant, renewed with the lease, outlives it."""
        if value < (least := 2 * info.data.get("lease", 0.0)):
            raise ValueError(f"a lock must outlive its task's lease: {least:g} s at least")
        return value

    @field_validator("address_limit")
    @classmethod
    def _address_limit(cls, value: int | None, info: ValidationInfo) -> int | None:
        most = info.data.get("connection_limit")
        if value is not None and most is not None and value > most:
            raise ValueError(f"it is more than HOLDFAST_CONNECTION_LIMIT, {most}")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _trusted_proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for written in value:
            try:
                ipaddress.ip_network(written, strict=False)
            except ValueError as error:
                raise ValueError(
                    f"{written!r} is no address or network such as 10.0.0.0/8"
                ) from error
        return value

    @field_validator("hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        found = tuple(word.lower().removesuffix(".") for word in value)
        for word in found:
            if _HOST.fullmatch(word) is None and not _is_address(word):
                raise ValueError(f"{word!r} is not a host such as api.example.com or *.example.com")
        return tuple(word.strip("[]") for word in found)

    @field_validator("backlog")
    @classmethod
    def _backlog(cls, value: dict[str, int]) -> dict[str, int]:
        for name, limit in value.items():
            if limit < 1:
                raise ValueError(f"{name}={limit} is not above zero")
        return {
            name if name == "*" else _check_name("queue", name): limit
            for name, limit in value.items()
        }

    @field_validator("redact_patterns")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return value

    @property
    def queue_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.queues.split(","))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        path = os.environ.get(f"{PREFIX}CONFIG")
        if path is None:
            return (init_settings, env_settings)
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(path)))


SECRETS = frozenset(
    name for name, field in Settings.model_fields.items() if SecretStr in get_args(field.annotation)
)


def load(**given: Any) -> Settings:
    """Load the settings: an argument comes before the environment, the file and the default."""
    _warn_of_misspelt()
    path = os.environ.get(f"{PREFIX}CONFIG")
    if path is not None and not Path(path).is_file():
        raise InvalidSetting(f"{PREFIX}CONFIG", path, "there is no such file")
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)[0], given, path) from error
    except ValueError as error:  # the file is no TOML
        raise InvalidSetting(f"{PREFIX}CONFIG", path, str(error)) from error


def _refusal(first: ErrorDetails, given: dict[str, Any], path: str | None) -> InvalidSetting:
    key = ".".join(map(str, first["loc"]))
    name, value = f"{PREFIX}{key.upper()}", first.get("input")
    if key in SECRETS:
        value = HIDDEN
    if first["type"] != "extra_forbidden":
        return InvalidSetting(name, value, first["msg"].removeprefix("Value error, "))
    meant = _closest_name(key, Settings.model_fields)
    if key in given:
        return InvalidSetting(name, value, f"there is no such setting{meant}")
    return InvalidSetting(f"{PREFIX}CONFIG", path, f"there is no setting {key!r}{meant}")


def _warn_of_misspelt() -> None:
    """Name each variable that is no setting, once in the life of the process; the processes that it
    starts, such as a service's workers, inherit what was named."""
    known = [name.upper() for name in (*Settings.model_fields, *BESIDE)]
    inherited = os.environ.get(NAMED_BEFORE, "").split(",")
    for variable in sorted(os.environ):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known or name in _misspelt or name in inherited:
            continue
        _misspelt.add(name)
        os.environ[NAMED_BEFORE] = ",".join(sorted({*inherited, *_misspelt} - {""}))
        meant = _closest_name(name, known, PREFIX)
        log.warning("%s is set, but there is no such setting%s", variable, meant)


_misspelt: set[str] = set()  # those that were named


def _closest_name(name: str, known: Iterable[str], prefix: str = "") -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word.strip("[]"))
    except ValueError:
        return False
    return True


def _check_name(kind: str, value: str) -> str:
    try:
        return names.check(kind, value)
    except InvalidInput as error:
        raise ValueError(str(error)) from error
