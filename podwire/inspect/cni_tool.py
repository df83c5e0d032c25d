"""CNI from the command line: attaches any network namespace to any configured network, with any plugins.

Everything is remembered as a runtime remembers it, so that `delete` and `check` work later, without the configuration
and, for `delete`, without the namespace.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from podwire.linux.proc.namespaces import identity
from podwire.linux.proc.processes import Finished, run
from podwire.protocols.cni.config import NetworkList
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Object
from podwire.protocols.cni.verbs import VERBS, is_id, is_ifname
from podwire.protocols.cni.versions import at_least
from podwire.runtime.cni import Conflists, Plugins
from podwire.runtime.cni.cache import AttachmentCache, CachedAttachment, manual_cache, valid_attachments
from podwire.runtime.cni.chain import AddFailed, Chain, verified_netns
from podwire.runtime.cni.gc_lock import LOCKS, GcLock
from podwire.runtime.cni.plugins import PluginFailed

_log = logging.getLogger("podwire.cni")

CONF = Path("/etc/cni/net.d")
BIN = Path("/opt/cni/bin")
STATE = Path("/var/lib/podwire/cni")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where things are; the command line's flags."""

    network: str
    conf_dir: Path = CONF
    bin_dirs: tuple[Path, ...] = (BIN,)
    state: Path = STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is attached: an interface of a namespace."""

    id: str
    ifname: str = "eth0"
    netns: str = ""
    args: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)


def id_of(netns: str) -> str:
    """The id of a namespace that nobody gave one: the same for the same path, also when it is gone."""
    return f"podwire-{hashlib.sha256(str(Path(netns).absolute()).encode()).hexdigest()[:20]}"


class Tool:
    """The verbs. They raise PluginFailed, CniError, and OSError for the disk."""

    def __init__(self, options: Options, run: Callable[..., Finished] = run) -> None:
        """`run` runs a plugin's program, as podwire.linux.proc.processes.run does."""
        if not is_id(options.network):
            raise CniError(Code.BAD_CONFIG, f"{options.network!r} is no name of a network")
        self._options = options
        self._chain = Chain(Plugins(options.bin_dirs, run=run))
        self._conflists = Conflists(options.conf_dir)
        self._exclusion = GcLock(options.state / LOCKS)

    @cached_property
    def _memory(self) -> AttachmentCache:
        """Made by who needs it: STATUS and VERSION leave no trace."""
        return manual_cache(self._options.state, self._options.network)

    def network(self) -> NetworkList:
        for network in self._conflists.networks():
            if network.name == self._options.network:
                return network
        trouble = self._conflists.problem()
        told = f"no network {self._options.network} in {self._options.conf_dir}" + (f" ({trouble})" if trouble else "")
        raise CniError(Code.BAD_CONFIG, told)

    def add(self, target: Target) -> Object:
        """The result, as the last plugin printed it. When one fails, everything is given back first."""
        network = self.network()
        attached = _described(target, network, identity(target.netns))
        with self._exclusion.shared(network.name):
            if (target.id, target.ifname) in self._memory.load():
                told = f"{target.id} {target.ifname} is attached to {network.name} already, or was not wholly deleted"
                raise CniError(Code.BAD_CONFIG, f"{told}: del it first")
            self._memory.write(attached)
            try:
                result = self._chain.add(attached)
            except AddFailed as failed:
                raise self._undone(attached, failed) from failed
            self._memory.write(msgspec.structs.replace(attached, result=result))
        return result

    def _undone(self, attached: CachedAttachment, failed: AddFailed) -> PluginFailed:
        left = self._chain.delete(attached, failed.ran, attached.netns)
        if not left:
            self._memory.remove(attached.id, attached.ifname)
            return failed.error
        return failed.error.followed_by(left)

    def delete(self, target: Target) -> None:
        """With what is remembered; else with the configuration, since plugins clean up by ids."""
        attached = self._remembered(target)
        if attached is None:
            attached = _described(target, self.network(), 0)
        with self._exclusion.shared(attached.name):
            left = self._chain.delete(attached, attached.plugins, verified_netns(attached.netns, attached.netns_inode))
        if left:
            raise left[0].followed_by(left[1:])
        self._memory.remove(attached.id, attached.ifname)

    def check(self, target: Target) -> None:
        attached = self._remembered(target)
        if attached is None:
            told = f"{target.id} {target.ifname} is not attached to {self._options.network}, as far as is remembered"
            raise CniError(Code.UNKNOWN_CONTAINER, told)
        with self._exclusion.shared(attached.name):
            self._chain.check(attached)

    def gc(self, stay: Iterable[tuple[str, str]]) -> None:
        """Give back what belongs to nobody.

        These stay, and what a runtime remembers in the same place, and what was attached here and has its namespace.
        """
        network = self.network()
        if not at_least(network.version, VERBS["GC"].since):
            raise CniError(Code.INCOMPATIBLE_VERSION, _too_old("GC", network))
        if network.disable_gc:
            _log.warning("nothing is collected: disableGC is set", extra={"network": network.name})
            return
        runtime = AttachmentCache(self._options.state / "cache")
        with self._exclusion.exclusive(network.name):
            left = self._forget_the_dead()
            known = valid_attachments(self._memory.load() | runtime.load(), network.name)
            left += self._chain.gc(network, {*stay, *known})
        if left:
            raise left[0].followed_by(left[1:])

    def _forget_the_dead(self) -> list[PluginFailed]:
        """DEL what has lost its namespace; GC is no substitute for it."""
        left: list[PluginFailed] = []
        for attached in self._memory.load().values():
            if attached is None or verified_netns(attached.netns, attached.netns_inode):
                continue
            failed = self._chain.delete(attached, attached.plugins, "")
            if not failed:
                self._memory.remove(attached.id, attached.ifname)
            left += failed
        return left

    def status(self) -> None:
        network = self.network()
        if not at_least(network.version, VERBS["STATUS"].since):
            raise CniError(Code.INCOMPATIBLE_VERSION, _too_old("STATUS", network))
        self._chain.status(network)

    def versions(self) -> tuple[str, dict[str, list[str]]]:
        """The version that the network is run with, and what each of its plugins supports."""
        network = self.network()
        return network.version, self._chain.versions(network)

    def _remembered(self, target: Target) -> CachedAttachment | None:
        """None when there is nothing that can be read."""
        return self._memory.load().get((target.id, target.ifname))


def _described(target: Target, network: NetworkList, inode: int) -> CachedAttachment:
    if not is_id(target.id):
        raise CniError(Code.BAD_ENVIRONMENT, f"{target.id!r} is no id that CNI plugins take")
    if not is_ifname(target.ifname):
        raise CniError(Code.BAD_ENVIRONMENT, f"{target.ifname!r} is no name of an interface")
    return CachedAttachment(
        id=target.id,
        ifname=target.ifname,
        netns=target.netns,
        netns_inode=inode,
        args=target.args,
        capabilities=dict(target.capabilities),
        name=network.name,
        version=network.version,
        plugins=network.plugins,
        disable_check=network.disable_check,
    )


def _too_old(verb: str, network: NetworkList) -> str:
    return f"{verb} is not in cniVersion {network.version}, which network {network.name} has"
