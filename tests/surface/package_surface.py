"""The surface that the package describes: commands, settings, metrics, names and stored keys."""

import json
from collections.abc import Iterator
from enum import Enum
from importlib.metadata import entry_points
from typing import Any, get_args

from pydantic_settings import BaseSettings

from tests.surface import package_parts, source
from tests.surface.facts import lines, schema_facts


def commands() -> list[str]:
    """Return each command with its options, arguments, short forms, defaults and variables."""
    scripts = entry_points(group="console_scripts")
    named = [f"script {one.name}" for one in scripts if one.value.startswith("holdfast")]
    return lines([*named, *_command("holdfast", package_parts.COMMAND_LINE)])


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"{name}{' hidden' if command.hidden else ''}"
    yield from (fact for param in command.params for fact in _parameter(name, param))
    for inner, below in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {inner}", below)


def _parameter(command: str, param: Any) -> Iterator[str]:
    is_option = param.opts[0].startswith("-")
    at = f"{command} {param.opts[0] if is_option else f'<{param.metavar or param.name}>'}"
    kind = param.type_descriptor.annotation
    kind = (get_args(kind) or (kind,))[0]  # of a list, that of its elements
    choices = [one.value for one in kind] if issubclass(kind, Enum) else []
    yield f"{at} takes {'choice' if choices else kind.__name__}"
    yield from (f"{at} choice {choice}" for choice in choices)
    yield from (f"{at} also {form}" for form in [*param.opts[1:], *param.secondary_opts])
    yield f"{at} default {_shown(param.default)}"
    for fact in ("required", "multiple", "is_flag", "hidden"):
        if getattr(param, fact, False):
            yield f"{at} {fact}"
    for fact in ("metavar", "min", "max", "envvar"):
        if (value := getattr(param, fact, None)) is not None:
            yield f"{at} {fact} {value}"
    if param.nargs != 1:
        yield f"{at} nargs {param.nargs}"


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (list, tuple)):
        return json.dumps([_shown(one) for one in value])
    return json.dumps(value) if isinstance(value, (str, int, float, bool)) else "none"


def settings() -> list[str]:
    """Return each setting with its variable, type, default and bounds, and the other variables."""
    [found] = [
        one for one in BaseSettings.__subclasses__() if one.__module__.startswith("holdfast")
    ]
    prefix = found.model_config["env_prefix"]
    known = {f"{prefix}{name}".upper(): name for name in found.model_fields}
    others = source.variables(prefix) - {*known}
    facts = [f"setting {name} variable {variable}" for variable, name in known.items()]
    facts += [f"variable {variable}, no setting" for variable in others]
    return lines([*facts, *schema_facts(found.model_json_schema(), "setting")])


def loggers() -> list[str]:
    """Return our loggers, and the fields of a JSON log line."""
    fields = {*package_parts.fields_of_a_log_line(), *source.fields_of_log_calls()}
    return lines([*(f"logger {n}" for n in source.loggers()), *(f"field {n}" for n in fields)])


def metrics() -> list[str]:
    return lines(
        fact
        for name, (kind, labels) in package_parts.METRICS.items()
        for fact in (f"{name} {kind}", *(f"{name} label {label}" for label in labels))
    )


def names() -> list[str]:
    """Return the names that are stored, sent or typed: of events, commands, statuses and errors."""
    facts = [f"{what}: {one.value}" for what, kind in package_parts.VALUES.items() for one in kind]
    facts += [f"{what}: {name}" for what, name in package_parts.OWN_NAMES.items()]
    facts += [f"told to hooks: {name}" for name in package_parts.TOLD_TO_HOOKS]
    facts += [f"alert {code}: {severity}" for code, severity in package_parts.ALERTS.items()]
    for name, kind in package_parts.EVENTS.items():
        facts.append(f"event {name}")
        fields = enumerate(kind.__struct_encode_fields__, 1)  # lists in Redis keep their order
        facts += [f"event {name} field {number} {field}" for number, field in fields]
    return lines([*facts, *package_parts.errors()])


def keys() -> list[str]:
    """Return the patterns of the keys in Redis, with the types of those that have a fixed name."""
    return lines(f"key {template} {kind}".rstrip() for template, kind in package_parts.KEYS.items())
