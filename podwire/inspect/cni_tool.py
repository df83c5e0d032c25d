"""CNI from the command line: attaches any network namespace to any configured network, with any plugins.

Attachments are recorded as a runtime records them, so that `delete` and `check` work later without the configuration,
and `delete` without the namespace.
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
from podwire.protocols.cni.verbs import LONGEST_ID, VERBS, is_id, is_ifname
from podwire.protocols.cni.versions import at_least
from podwire.runtime.cni import Conflists, Plugins
from podwire.runtime.cni.cache import BY_HAND, AttachmentCache, CachedAttachment, manual_cache, valid_attachments
from podwire.runtime.cni.chain import AddFailed, Chain, verified_netns
from podwire.runtime.cni.gc_lock import LOCKS, GcLock
from podwire.runtime.cni.plugins import PluginFailed

_log = logging.getLogger("podwire.cni")

CONF = Path("/etc/cni/net.d")
BIN = Path("/opt/cni/bin")
STATE = Path("/var/lib/podwire/cni")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Paths, as on the command line."""

    network: str
    conf_dir: Path = CONF
    bin_dirs: tuple[Path, ...] = (BIN,)
    state: Path = STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The interface of a namespace that is attached."""

    id: str
    ifname: str = "eth0"
    netns: str = ""
    args: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)


def id_of(netns: str) -> str:
    """Returns the id for a namespace path without one; the same path always gives the same id."""
    return f"podwire-{hashlib.sha256(str(Path(netns).absolute()).encode()).hexdigest()[:20]}"


class Tool:
    """The verbs. Raise PluginFailed, CniError, and OSError for the disk."""

    def __init__(self, options: Options, run: Callable[..., Finished] = run) -> None:
        """`run` runs a plugin's program, as podwire.linux.proc.processes.run does."""
        if not is_id(options.network):
            raise CniError(Code.BAD_CONFIG, f"{options.network!r} is not a valid network name")
        self._options = options
        self._plugins = Plugins(options.bin_dirs, run=run, state=options.state / BY_HAND)
        self._chain = Chain(self._plugins)
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
        message = f"no network {self._options.network} in {self._options.conf_dir}" + (
            f" ({trouble})" if trouble else ""
        )
        raise CniError(Code.BAD_CONFIG, message)

    def add(self, target: Target) -> Object:
        """Returns the result of the last plugin. When one fails, everything is released first."""
        network = self.network()
        attached = _described(target, network, identity(target.netns))
        with self._exclusion.shared(network.name):
            if (target.id, target.ifname) in self._memory.load():
                message = (
                    f"{target.id} {target.ifname} is attached to {network.name} already, or was not completely deleted"
                )
                raise CniError(Code.BAD_CONFIG, f"{message}: del it first")
            self._memory.write(attached)
            try:
                result = self._chain.add(attached)
            except AddFailed as failed:
                raise self._undone(attached, failed) from failed
            self._memory.write(msgspec.structs.replace(attached, result=result))
        return result

    def _undone(self, attached: CachedAttachment, failed: AddFailed) -> PluginFailed:
        left = self._chain.undo_add(attached, failed)
        if not left:
            self._memory.remove(attached.id, attached.ifname)
            return failed.error
        return failed.error.followed_by(left)

    def delete(self, target: Target) -> None:
        """Uses the recorded attachment; else the configuration, because plugins clean up by id."""
        attached = self._recorded(target)
        if attached is None:
            attached = _described(target, self.network(), 0)
        self._plugins.kill_orphaned_calls(self._was_added)
        with self._exclusion.shared(attached.name):
            left = self._chain.delete(attached, attached.plugins, verified_netns(attached.netns, attached.netns_inode))
        if left:
            raise left[0].followed_by(left[1:])
        self._memory.remove(attached.id, attached.ifname)

    def check(self, target: Target) -> None:
        attached = self._recorded(target)
        if attached is None:
            message = f"{target.id} {target.ifname} has no recorded attachment to {self._options.network}"
            raise CniError(Code.UNKNOWN_CONTAINER, message)
        with self._exclusion.shared(attached.name):
            self._chain.check(attached)

    def gc(self, stay: Iterable[tuple[str, str]]) -> None:
        """Releases resources of attachments that no longer exist.

        Kept are: `stay`, the records of a runtime in the same directory, and recorded attachments whose namespace
        exists.
        """
        network = self.network()
        if not at_least(network.version, VERBS["GC"].since):
            raise CniError(Code.INCOMPATIBLE_VERSION, _too_old("GC", network))
        if network.disable_gc:
            _log.warning("skipped garbage collection: disableGC is set", extra={"network": network.name})
            return
        runtime = AttachmentCache(self._options.state / "cache")
        with self._exclusion.exclusive(network.name):
            # Calls DEL for attachments that have lost their namespace; GC does not replace it.
            left: list[PluginFailed] = []
            for attached in self._memory.load().values():
                if attached is None or verified_netns(attached.netns, attached.netns_inode):
                    continue
                failed = self._chain.delete(attached, attached.plugins, "")
                if not failed:
                    self._memory.remove(attached.id, attached.ifname)
                left += failed
            known = valid_attachments(self._memory.load() | runtime.load(), network.name)
            left += self._chain.gc(network, {*stay, *known})
        if left:
            raise left[0].followed_by(left[1:])

    def status(self) -> None:
        network = self.network()
        if not at_least(network.version, VERBS["STATUS"].since):
            raise CniError(Code.INCOMPATIBLE_VERSION, _too_old("STATUS", network))
        self._chain.status(network)

    def versions(self) -> tuple[str, dict[str, list[str]]]:
        """Returns the version of the network, and the versions that each of its plugins supports."""
        network = self.network()
        return network.version, self._chain.versions(network)

    def _was_added(self, id_: str, ifname: str) -> bool:
        attached = self._memory.get(id_, ifname)
        return attached is not None and attached.result is not None

    def _recorded(self, target: Target) -> CachedAttachment | None:
        """Returns None without a readable record."""
        return self._memory.load().get((target.id, target.ifname))


def _described(target: Target, network: NetworkList, inode: int) -> CachedAttachment:
    if not is_id(target.id) or len(target.id) > LONGEST_ID:
        raise CniError(Code.BAD_ENVIRONMENT, f"{target.id[:LONGEST_ID]!r} is not a valid CNI_CONTAINERID")
    if not is_ifname(target.ifname):
        raise CniError(Code.BAD_ENVIRONMENT, f"{target.ifname!r} is not a valid CNI_IFNAME")
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
