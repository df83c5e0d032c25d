"""Levels, versions and the policy of a namespace, as its labels say. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from podwire.protocols.k8sapi.status import FieldError, invalid

PREFIX = "pod-security.kubernetes.io/"
MODES = ("enforce", "audit", "warn")
LATEST = 2**31
"""The minor version that is newer than any."""

_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]{1,8})", re.ASCII)
BAD_LEVEL = "must be one of privileged, baseline, restricted"
BAD_VERSION = 'must be "latest" or "v1.x"'


class Level(IntEnum):
    """Ordered by strictness."""

    PRIVILEGED = 0
    BASELINE = 1
    RESTRICTED = 2


@dataclass(frozen=True, slots=True)
class LevelVersion:
    """A level as a version of Kubernetes 1.x defined it."""

    level: Level = Level.PRIVILEGED
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level.name.lower()}:{version_text(self.minor)}"

    def equivalent(self, other: "LevelVersion") -> bool:
        return self == other or self.level is other.level is Level.PRIVILEGED


@dataclass(frozen=True, slots=True)
class Policy:
    """The levels that are enforced, audited and warned about."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    @property
    def privileged(self) -> bool:
        return self.enforce.level is self.audit.level is self.warn.level is Level.PRIVILEGED

    def equivalent(self, other: "Policy") -> bool:
        return (
            self.enforce.equivalent(other.enforce)
            and self.audit.equivalent(other.audit)
            and self.warn.equivalent(other.warn)
        )


_LEVELS = {level.name.lower(): level for level in Level}


def version_text(minor: int) -> str:
    return "latest" if minor == LATEST else f"v1.{minor}"


def parse_level(text: str) -> Level | None:
    """Returns None for an unknown level."""
    return _LEVELS.get(text)


def parse_version(text: str) -> int | None:
    """Returns the minor version; None for an invalid text."""
    if text == "latest":
        return LATEST
    match = _VERSION.fullmatch(text)
    return int(match[1]) if match else None


def policy_of(labels: Mapping[str, str], defaults: Policy) -> tuple[Policy, list[FieldError]]:
    """Returns the policy that the labels of a namespace choose, and the errors in them.

    Invalid labels fail closed where they are enforced (restricted, latest) and open where they only inform. A namespace
    that enforces without saying what to warn about warns about at least what it enforces.
    """
    if not any(name.startswith(PREFIX) for name in labels):
        return defaults, []
    errors: list[FieldError] = []
    chosen: dict[str, LevelVersion] = {}
    for mode in MODES:
        policy: LevelVersion = getattr(defaults, mode)
        if (text := labels.get(f"{PREFIX}{mode}")) is not None:
            level = parse_level(text)
            if level is None:
                errors.append(invalid(f"metadata.labels[{PREFIX}{mode}]", text, BAD_LEVEL))
                level = Level.RESTRICTED if mode == "enforce" else Level.PRIVILEGED
            policy = replace(policy, level=level)
        if (text := labels.get(f"{PREFIX}{mode}-version")) is not None:
            minor = parse_version(text)
            if minor is None:
                errors.append(invalid(f"metadata.labels[{PREFIX}{mode}-version]", text, BAD_VERSION))
            policy = replace(policy, minor=LATEST if minor is None else minor)
        chosen[mode] = policy
    enforce, warn = chosen["enforce"], chosen["warn"]
    enforced = parse_level(labels.get(f"{PREFIX}enforce", "")) is not None
    if enforced and f"{PREFIX}warn" not in labels and enforce.level > warn.level:
        minor = warn.minor if f"{PREFIX}warn-version" in labels else enforce.minor
        chosen["warn"] = LevelVersion(enforce.level, minor)
    return Policy(**chosen), errors
