"""Reads settings from a YAML file, with the names that containerd gives them in TOML.

Strict: an unknown key or a value of another type is an error that names the key; a misspelt `required_plugins` must not
start pods without them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from podwire.nri.adaptation.settings import PluginSettings, Settings, ValidatorSettings

STANDARD = Settings(
    socket=Path("/var/run/nri/nri.sock"),
    plugin_path=Path("/opt/nri/plugins"),
    plugin_config_path=Path("/etc/nri/conf.d"),
)
"""containerd's paths."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")

Read = Callable[[str, Any], Any]
"""Converts the value at a key. Raises BadConfiguration."""


class BadConfiguration(ValueError):
    """The key, and what is wrong with it."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}" if key else reason)
        self.key = key


def load(path: str | Path, standard: Settings = STANDARD) -> Settings:
    """`standard` has the paths that the file does not set. Raises BadConfiguration, OSError."""
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise BadConfiguration("", f"{path} is not YAML: {error}") from error
    return settings({} if document is None else document, standard)


def settings(document: object, standard: Settings = STANDARD) -> Settings:
    """Raises BadConfiguration."""
    read = _mapped("", document, _KEYS)
    validator = read.pop("default_validator", {})
    always = {name: validator.pop(name) for name in _ALWAYS if name in validator}
    connections = not read.pop("disable_connections", False)
    made = {field: getattr(standard, field) for field in ("socket", "plugin_path", "plugin_config_path")}
    made |= {_NAMES.get(key, key): value for key, value in read.items()} | always
    if not connections:
        made["socket"] = None
    return Settings(**made, validator=ValidatorSettings(**validator))


def _mapped(key: str, mapping: object, keys: Mapping[str, Read]) -> dict[str, Any]:
    if not isinstance(mapping, dict):
        raise BadConfiguration(key, "must be a mapping")
    if unknown := [name for name in mapping if name not in keys]:
        raise BadConfiguration(_below(key, unknown[0]), "is not a setting")
    return {name: keys[name](_below(key, name), value) for name, value in mapping.items()}


def _below(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadConfiguration(key, "must be true or false")
    return value


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadConfiguration(key, "must be a string")
    return value


def _path(key: str, value: object) -> Path:
    if not isinstance(value, str) or not value.startswith("/"):
        raise BadConfiguration(key, "must be an absolute path")
    return Path(value)


def _names(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise BadConfiguration(key, "must be a list of plugin names")
    return tuple(value)


def _seconds(key: str, value: object) -> float:
    """As Go writes durations: 5s, 1m30s, 500ms."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise BadConfiguration(key, f"{value!r} is not a duration such as 5s or 500ms")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))


def _some_seconds(key: str, value: object) -> float:
    if (seconds := _seconds(key, value)) <= 0:
        raise BadConfiguration(key, "must be greater than 0")
    return seconds


def _validator(key: str, value: object) -> dict[str, Any]:
    return _mapped(key, value, _VALIDATOR_KEYS)


def _plugins(key: str, value: object) -> dict[str, PluginSettings]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadConfiguration(key, "must be a mapping of plugins by name or NN-name")
    return {
        name: PluginSettings(**_mapped(_below(key, name), {} if item is None else item, _PLUGIN_KEYS))
        for name, item in value.items()
    }


_ALWAYS: dict[str, Read] = {"required_plugins": _names, "tolerate_missing_plugins_annotation": _text}
"""They are below default_validator, as in containerd, and apply whether it is enabled or not: it looks at
CreateContainer only, and pods have to fail closed before that."""

_VALIDATOR_KEYS: dict[str, Read] = {**{field.name: _flag for field in fields(ValidatorSettings)}, **_ALWAYS}
_PLUGIN_KEYS: dict[str, Read] = {"timeout": _some_seconds, "concurrent": _flag}
_KEYS: dict[str, Read] = {
    "disable": _flag,
    "disable_connections": _flag,
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
