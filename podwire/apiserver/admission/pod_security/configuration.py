"""The configuration of PodSecurity: defaults for namespaces without labels, and exemptions. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.apiserver.admission.pod_security.levels import (
    BAD_LEVEL,
    BAD_VERSION,
    MODES,
    LevelVersion,
    Policy,
    parse_level,
    parse_version,
)
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, invalid

VERSIONS = tuple(f"pod-security.admission.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
KIND = "PodSecurityConfiguration"


@dataclass(frozen=True, slots=True)
class PodSecurityConfiguration:
    """Without a file nothing is enforced where no label says so."""

    defaults: Policy = field(default_factory=Policy)
    users: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


def parse(given: Mapping[str, Any]) -> PodSecurityConfiguration:
    """Reads a PodSecurityConfiguration; raises ValueError with all errors in it."""
    if given.get("apiVersion") not in VERSIONS or given.get("kind") != KIND:
        raise ValueError(f"must be a {KIND} of {VERSIONS[0]}, not {given.get('kind')} of {given.get('apiVersion')}")
    errors = [
        *_unknown(given, ("apiVersion", "kind", "defaults", "exemptions"), ""),
        *_unknown(_part(given, "defaults"), (*MODES, *(f"{mode}-version" for mode in MODES)), "defaults."),
        *_unknown(_part(given, "exemptions"), ("usernames", "namespaces", "runtimeClasses"), "exemptions."),
    ]
    policies = {mode: _level_version(_part(given, "defaults"), mode, errors) for mode in MODES}
    exemptions = _part(given, "exemptions")
    configuration = PodSecurityConfiguration(
        Policy(**policies),
        _names(exemptions, "usernames", lambda name: [] if name else ["username must not be empty"], errors),
        _names(exemptions, "namespaces", names.dns_label, errors),
        _names(exemptions, "runtimeClasses", names.dns_subdomain, errors),
    )
    if errors:
        raise ValueError(", ".join(map(str, errors)))
    return configuration


def _part(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = given.get(name) or {}
    if not isinstance(part, Mapping):
        raise ValueError(f"{name}: must be a mapping")  # noqa: TRY004 - the caller reports bad values
    return part


def _unknown(given: Mapping[str, Any], known: Sequence[str], path: str) -> list[FieldError]:
    return [invalid(f"{path}{name}", given[name], "unknown field") for name in given if name not in known]


def _level_version(defaults: Mapping[str, Any], mode: str, errors: list[FieldError]) -> LevelVersion:
    level_text, version_text = str(defaults.get(mode) or "privileged"), str(defaults.get(f"{mode}-version") or "latest")
    level, minor = parse_level(level_text), parse_version(version_text)
    if level is None:
        errors.append(invalid(f"defaults.{mode}", level_text, BAD_LEVEL))
    if minor is None:
        errors.append(invalid(f"defaults.{mode}-version", version_text, BAD_VERSION))
    return LevelVersion(level, minor) if level is not None and minor is not None else LevelVersion()


def _names(
    exemptions: Mapping[str, Any], part: str, check: Callable[[str], list[str]], errors: list[FieldError]
) -> frozenset[str]:
    seen: set[str] = set()
    for index, name in enumerate(exemptions.get(part) or ()):
        path = f"exemptions.{part}[{index}]"
        if why := check(str(name)):
            errors.append(invalid(path, name, ", ".join(why)))
        elif name in seen:
            errors.append(duplicate(path, name))
        seen.add(str(name))
    return frozenset(seen)
