"""Configuration of the tuning plugin. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from podwire.cniplugins.pod_link import check_mac, check_mtu
from podwire.linux import errors as linux
from podwire.linux.net.sysctls import parts
from podwire.protocols.cni import args
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object, looked_up, taken
from podwire.protocols.cni.verbs import Invocation

IFNAME = "IFNAME"
"""Placeholder for the name of the pod's interface in a sysctl."""
NETWORK = ("net.*",)
_LONGEST_QUEUE = (1 << 31) - 1


class Settings(NamedTuple):
    sysctl: dict[str, str]
    """Values by paths below /proc/sys."""
    link: Object
    """Attributes to change, as arguments of `links.change`."""


def parse_settings(config: PluginConfig, invocation: Invocation, allowed: Sequence[str] | None = None) -> Settings:
    """`args.cni` precedes `runtimeConfig`, which precedes CNI_ARGS, which precedes the configuration.

    `allowed` is the administrator's allow-list of patterns, one of which must match each sysctl; None allows all.
    """
    raw = {**config.raw, **{key: value for key, value in config.args.items() if key != "sysctl" and value is not None}}
    mac = _mac(config, invocation)
    mtu = taken(raw, "mtu", int, 0)
    queue = looked_up(raw, "txQLen")
    check_mtu(mtu)
    if queue is not None and not 0 <= taken(raw, "txQLen", int, 0) <= _LONGEST_QUEUE:
        raise CniError(Code.BAD_CONFIG, f"txQLen: {queue} is not between 0 and {_LONGEST_QUEUE}")
    link: Object = {"mac": mac} if mac else {}
    link |= {"mtu": mtu} if mtu else {}
    link |= {"promiscuous": True} if taken(raw, "promisc", bool, False) else {}
    link |= {} if looked_up(raw, "allmulti") is None else {"all_multicast": taken(raw, "allmulti", bool, False)}
    link |= {} if queue is None else {"queue": queue}
    return Settings(_sysctls(config, invocation.ifname, allowed), link)


def _mac(config: PluginConfig, invocation: Invocation) -> str:
    mac = (
        taken(config.args, "mac", str, "", "args.cni.")
        or taken(config.runtime, "mac", str, "", "runtimeConfig.")
        or args.parsed(invocation.args, ("MAC",)).get("MAC", "")
        or taken(config.raw, "mac", str, "")
    )
    try:
        return check_mac(mac, "mac")
    except CniError as error:
        raise CniError(error.code, f"invalid args {mac} for MAC addr: {error.msg}", error.details) from error


def _sysctls(config: PluginConfig, ifname: str, allowed: Sequence[str] | None) -> dict[str, str]:
    sysctls: dict[str, str] = {}
    for where, raw in (("", config.raw), ("args.cni.", config.args)):
        values = taken(raw, "sysctl", dict, {}, where)
        paths = {key: _path(key, ifname, f"{where}sysctl") for key in values}
        for key, path in paths.items():
            if [*paths.values()].count(path) > 1:
                raise CniError(Code.BAD_CONFIG, f"{where}sysctl: duplicated key {key}, in two spellings")
            if allowed is not None and not any(re.search(pattern, key) for pattern in allowed):
                words = f"Sysctl {key} is not allowed. Only the following sysctls are allowed: [{' '.join(allowed)}]"
                raise CniError(Code.BAD_CONFIG, words, f"{where}sysctl")
            sysctls[path] = taken(values, key, str, "", f"{where}sysctl.")
    return sysctls


def _path(key: str, ifname: str, where: str) -> str:
    """Returns the path below /proc/sys. Raises CniError for a sysctl that does not belong to a network namespace."""
    try:
        return "/".join(part.replace(IFNAME, ifname) for part in parts(key, NETWORK))
    except linux.Refused as error:
        details = f"{where}: {key!r} is not a sysctl of a network namespace ({error.detail})"
        raise CniError(Code.BAD_CONFIG, f'invalid net sysctl key: "{key}"', details) from error


def patterns(text: str) -> list[str]:
    """Parses the administrator's allow-list."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        try:
            re.compile(line)
        except re.error as error:
            raise CniError(Code.BAD_CONFIG, f"allow-list of sysctls: {line!r} is not a pattern ({error})") from error
    return lines


def updated_result(result: Result, ifname: str, link: Object) -> Result:
    """Returns the result with the new MAC address and MTU of the pod's interface."""
    changed = {key: value for key, value in link.items() if key in ("mac", "mtu")}
    return result._replace(
        interfaces=tuple(
            link._replace(**changed) if link.name == ifname and link.sandbox else link for link in result.interfaces
        )
    )
