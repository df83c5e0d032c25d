"""What tuning is asked for. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from podwire.linux import errors as linux
from podwire.linux.net.sysctls import parts
from podwire.protocols.cni import args
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object, looked_up, taken
from podwire.protocols.cni.verbs import Invocation

IFNAME = "IFNAME"
"""Stands for the name of the pod's interface in a sysctl."""
NETWORK = ("net.*",)
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", re.ASCII)
_LARGEST_MTU, _LONGEST_QUEUE = 65535, (1 << 31) - 1


class Settings(NamedTuple):
    sysctl: dict[str, str]
    """Values by paths below /proc/sys."""
    link: Object
    """What changes of the link, by the names that `links.change` has for it."""


def parse_settings(config: PluginConfig, invocation: Invocation, allowed: Sequence[str] | None = None) -> Settings:
    """`args.cni` goes before `runtimeConfig`, that before CNI_ARGS, and that before the configuration.

    `allowed` are an administrator's patterns for sysctls, one of which must be found in each; None allows all.
    """
    raw = {**config.raw, **{key: value for key, value in config.args.items() if key != "sysctl" and value is not None}}
    mac = _mac(config, invocation)
    mtu = taken(raw, "mtu", int, 0)
    queue = looked_up(raw, "txQLen")
    if not 0 <= mtu <= _LARGEST_MTU:
        raise CniError(Code.BAD_CONFIG, f"mtu: {mtu} is not between 0 and {_LARGEST_MTU}")
    if queue is not None and not 0 <= taken(raw, "txQLen", int, 0) <= _LONGEST_QUEUE:
        raise CniError(Code.BAD_CONFIG, f"txQLen: {queue} is not between 0 and {_LONGEST_QUEUE}")
    link: Object = {"mac": mac} if mac else {}
    link |= {"mtu": mtu} if mtu else {}
    link |= {"promiscuous": True} if taken(raw, "promisc", bool, False) else {}
    link |= {} if looked_up(raw, "allmulti") is None else {"all_multicast": taken(raw, "allmulti", bool, False)}
    link |= {} if queue is None else {"queue": queue}
    return Settings(_sysctls(config, invocation.ifname, allowed), link)


def _mac(config: PluginConfig, invocation: Invocation) -> str:
    given = (
        taken(config.args, "mac", str, "", "args.cni.")
        or taken(config.runtime, "mac", str, "", "runtimeConfig.")
        or args.parsed(invocation.args, ("MAC",)).get("MAC", "")
        or taken(config.raw, "mac", str, "")
    )
    if given and not _MAC.fullmatch(given):
        raise CniError(Code.BAD_CONFIG, f"mac: {given!r} is no MAC address")
    return given.lower()


def _sysctls(config: PluginConfig, ifname: str, allowed: Sequence[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for where, told in (("", config.raw), ("args.cni.", config.args)):
        values = taken(told, "sysctl", dict, {}, where)
        read = {key: _path(key, ifname, f"{where}sysctl") for key in values}
        for key, path in read.items():
            if [*read.values()].count(path) > 1:
                raise CniError(Code.BAD_CONFIG, f"{where}sysctl: {key} is there twice, in two spellings")
            if allowed is not None and not any(re.search(each, key) for each in allowed):
                raise CniError(Code.BAD_CONFIG, f"{where}sysctl: {key} is not allowed; {', '.join(allowed)} are")
            found[path] = taken(values, key, str, "", f"{where}sysctl.")
    return found


def _path(key: str, ifname: str, where: str) -> str:
    """Below /proc/sys; only what belongs to a network namespace, and nothing that leads elsewhere."""
    try:
        return "/".join(each.replace(IFNAME, ifname) for each in parts(key, NETWORK))
    except linux.Refused as error:
        raise CniError(Code.BAD_CONFIG, f"{where}: {key!r} is no sysctl of a network ({error.detail})") from error


def patterns(text: str) -> list[str]:
    """The lines of an administrator's list."""
    found = [each.strip() for each in text.splitlines() if each.strip()]
    for each in found:
        try:
            re.compile(each)
        except re.error as error:
            raise CniError(Code.BAD_CONFIG, f"list of allowed sysctls: {each!r} is no pattern ({error})") from error
    return found


def told(result: Result, ifname: str, link: Object) -> Result:
    """A result in which the pod's interface has what it was given."""
    changed = {key: value for key, value in link.items() if key in ("mac", "mtu")}
    links = (each._replace(**changed) if each.name == ifname and each.sandbox else each for each in result.interfaces)
    return result._replace(interfaces=tuple(links))
