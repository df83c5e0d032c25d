"""Reads settings from a YAML file, with the names that containerd gives them in TOML.

Strict: an unknown key or a value of another type is an error that names the key; a misspelt `required_plugins` must not
start pods without them.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from podwire.nri.adaptation.settings import PluginSettings, Settings, ValidatorSettings
from podwire.protocols.settings import BadConfig, Read, below, flag, mapped, parsed

STANDARD = Settings(
    socket=Path("/var/run/nri/nri.sock"),
    plugin_path=Path("/opt/nri/plugins"),
    plugin_config_path=Path("/etc/nri/conf.d"),
)
"""containerd's paths."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def load(path: str | Path, standard: Settings = STANDARD) -> Settings:
    """`standard` has the paths that the file does not set. Raises BadConfig, OSError."""
    document = parsed(Path(path).read_bytes(), path)
    return settings({} if document is None else document, standard)


def settings(document: object, standard: Settings = STANDARD) -> Settings:
    """Raises BadConfig."""
    read = mapped("", document, _KEYS, renamed=_NAMES)
    validator = read.pop("default_validator", {})
    always = {name: validator.pop(name) for name in _ALWAYS if name in validator}
    connections = not read.pop("disable_connections", False)
    made = {field: getattr(standard, field) for field in ("socket", "plugin_path", "plugin_config_path")}
    made |= read | always
    if not connections:
        made["socket"] = None
    return Settings(**made, validator=ValidatorSettings(**validator))


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadConfig(key, "must be a string")
    return value


def _path(key: str, value: object) -> Path:
    if not isinstance(value, str) or not value.startswith("/"):
        raise BadConfig(key, "must be an absolute path")
    return Path(value)


def _names(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise BadConfig(key, "must be a list of plugin names")
    return tuple(value)


def _seconds(key: str, value: object) -> float:
    """As Go writes durations: 5s, 1m30s, 500ms."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise BadConfig(key, f"{value!r} is not a duration such as 5s or 500ms")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))


def _some_seconds(key: str, value: object) -> float:
    if (seconds := _seconds(key, value)) <= 0:
        raise BadConfig(key, "must be greater than 0")
    return seconds


def _validator(key: str, value: object) -> dict[str, Any]:
    return mapped(key, value, _VALIDATOR_KEYS)


def _plugins(key: str, value: object) -> dict[str, PluginSettings]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadConfig(key, "must be a mapping of plugins by name or NN-name")
    return {
        name: PluginSettings(**mapped(below(key, name), {} if item is None else item, _PLUGIN_KEYS))
        for name, item in value.items()
    }


_ALWAYS: dict[str, Read] = {"required_plugins": _names, "tolerate_missing_plugins_annotation": _text}
"""They are below default_validator, as in containerd, and apply whether it is enabled or not: it looks at
CreateContainer only, and pods have to fail closed before that."""

_VALIDATOR_KEYS: dict[str, Read] = {**{field.name: flag for field in fields(ValidatorSettings)}, **_ALWAYS}
_PLUGIN_KEYS: dict[str, Read] = {"timeout": _some_seconds, "concurrent": flag}
_KEYS: dict[str, Read] = {
    "disable": flag,
    "disable_connections": flag,
    "socket_path": _path,
    "plugin_path": _path,
    "plugin_config_path": _path,
    "plugin_registration_timeout": _some_seconds,
    "plugin_request_timeout": _some_seconds,
    "plugin_synchronize_timeout": _some_seconds,
    "grace": _seconds,
    "plugins": _plugins,
    "default_validator": _validator,
}
_NAMES = {
    "socket_path": "socket",
    "plugin_registration_timeout": "registration_timeout",
    "plugin_request_timeout": "request_timeout",
    "plugin_synchronize_timeout": "synchronize_timeout",
}
"""Settings that have another name here."""
