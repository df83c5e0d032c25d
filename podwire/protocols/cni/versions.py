"""Versions of the specification, in order."""

import re
from collections.abc import Collection, Iterable

from podwire.protocols.cni.errors import CniError, Code

KNOWN = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
OLDEST, LATEST = KNOWN[0], KNOWN[-1]
_FORM = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})", re.ASCII)


def parsed(text: object) -> tuple[int, int, int]:
    """Parses a version into comparable numbers; an invalid version is a decoding failure."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise CniError(Code.UNDECODABLE, f"cniVersion: {text!r} is not a version such as {LATEST}")
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


def at_least(version: str, since: str) -> bool:
    return parsed(version) >= parsed(since)


def checked(version: object, supported: Collection[str] = KNOWN) -> str:
    """A configuration's version; one that says none, or "", means the first."""
    given = OLDEST if version in (None, "") else version
    if not isinstance(given, str):
        raise CniError(
            Code.UNDECODABLE, "decoding version from network config", f"cniVersion: {given!r} is not a string"
        )
    if given not in supported:
        details = f"cniVersion {given} is not supported; supported are {', '.join(supported)}"
        raise CniError(Code.INCOMPATIBLE_VERSION, "incompatible CNI versions", details)
    return given


def newest(offered: Iterable[object], known: Collection[str] = KNOWN) -> str:
    """The highest of the versions that a configuration offers and we know."""
    given = {parsed(version): str(version) for version in offered}
    common = [version for version in given if given[version] in known]
    if not common:
        offered_text = ", ".join(given.values())
        raise CniError(
            Code.INCOMPATIBLE_VERSION, f"cniVersion {offered_text} is not supported", f"known are {', '.join(known)}"
        )
    return given[max(common)]
