"""The pod network by CNI plugins. All that was attached can be detached: after a crash, without the network's
configuration, without the pod's namespace.

Attaching (ADD):

1. Cache the attachment durably: from now on a restarted runtime knows that DEL is needed.
2. Call ADD of each plugin in order, each with the result of the plugin before.
3. Cache the result.

When a plugin fails, the plugins that ran get DEL in reverse order, the failing one first. If DEL fails, too, the
attachment stays in the cache.

Detaching (DEL): in reverse order, with the configuration of ADD's time. A plugin that fails does not stop the DEL of
the others; all failures are reported, and the attachment leaves the cache when all plugins have succeeded. Until then
it is `pending`: marked as leaving on disk, and retried by the reconciler.

Lost files of the cache: a pod that a sandbox's record calls attached, and whose file is damaged or missing, is cached
anew at the start (`adopt`), as it would be attached now. So GC spares a running pod, and DEL releases it.

Locking: operations of one pod run one after the other (keyed lock), each to its end although its caller is cancelled,
because a plugin must not be stopped halfway. GC excludes the other verbs of its network (gc_lock.py). What a runtime
that was killed has left running is killed before the first call (plugins.py).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.proc.namespaces import identity
from podwire.protocols.cni import results
from podwire.protocols.cni.config import NetworkList
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object
from podwire.protocols.cni.verbs import is_id
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument, Unavailable
from podwire.runtime.cni.arguments import capability_args, cni_args
from podwire.runtime.cni.cache import AttachmentCache, CachedAttachment, manual_cache, valid_attachments
from podwire.runtime.cni.chain import AddFailed, Chain, is_checkable, supports_gc, verified_netns
from podwire.runtime.cni.check_results import CHECKS, CheckOutcome, CheckResults, is_finding
from podwire.runtime.cni.config_watch import ConfigWatch
from podwire.runtime.cni.conflists import ENDINGS, Conflists
from podwire.runtime.cni.gc_lock import LOCKS, GcLock
from podwire.runtime.cni.limits import CniLimits
from podwire.runtime.cni.plugins import PluginFailed, PluginMissing, Plugins
from podwire.runtime.ports import Attachment
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.tasks.uncancelled import Uncancelled

_log = logging.getLogger("podwire.runtime.cni")

IFNAME = "eth0"
PREFERENCES = ("ipv4", "ipv6", "cni")
"""The first address of a pod: that of a family, or the first that the plugins return."""
_SHUTDOWN = 600.0

CACHED = declare("runtime.cni-remembered", "an attachment is cached, no plugin was called yet")
LEAVING = declare("cni.leaving", "a plugin has failed DEL, and the attachment is not marked as leaving yet")

T = TypeVar("T")


class CniNetwork:
    """A `Network` made by CNI plugins."""

    def __init__(
        self,
        conflists: Conflists,
        plugins: Plugins,
        cache: Path,
        prefer: str = "ipv4",
        limits: CniLimits | None = None,
        *,
        forgives_missing_plugins: bool = False,
    ) -> None:
        if prefer not in PREFERENCES:
            raise ValueError(f"{prefer!r} must be one of {', '.join(PREFERENCES)}")
        self.limits = limits or CniLimits()
        self._conflists = conflists
        self._plugins = plugins
        self._cache = AttachmentCache(cache, sweep=True)
        self._chain = Chain(plugins)
        self._state = cache.parent
        self._gc_lock = GcLock(self._state / LOCKS)
        self._prefer = prefer
        self._forgives_missing_plugins = forgives_missing_plugins
        self._check_results = CheckResults(self._state / CHECKS)
        self._check_results.keep_only(self._cache.ids())
        self._threads = ThreadPoolExecutor(self.limits.concurrent_pods, "podwire-cni")
        self._locks = KeyedLocks()
        self._uncancelled = Uncancelled()
        self._attached: set[str] = set()
        """The ids of pods that this process attached or adopted: a file of theirs that is missing is lost."""
        self._status_error: tuple[NetworkList, str] | None = None
        """The network of the last STATUS and its error; None when it succeeded."""
        self._pending = {key for key, cached in self._cache.load().items() if cached is not None and cached.leaving}
        self.on_failure: Callable[[], None] = lambda: None
        """Called from any thread when a plugin has failed a pod, or when a pod went while STATUS fails."""
        self.on_attaching: Callable[[], None] = lambda: None
        self.on_attached: Callable[[str], None] = lambda _id: None
        self.on_detaching: Callable[[str], None] = lambda _id: None
        """Called from the event loop, before and after ADD, and before DEL."""
        self._plugins.kill_orphaned_calls(self._was_added)  # before the first call of ours

    def _was_added(self, id_: str, ifname: str) -> bool:
        cached = self._cache.get(id_, ifname)
        return cached is not None and cached.result is not None

    async def attach(self, pod: Attachment) -> tuple[str, ...]:
        """Attaches a pod to the default network. Returns its addresses, the preferred one first."""
        if not is_id(pod.id):
            raise InvalidArgument(f"{pod.id!r} is not a valid CNI container id")
        self.on_attaching()
        addresses = await self._uncancelled.run(self._locked(pod.id, partial(self._attach, pod)))
        self.on_attached(pod.id)
        return addresses

    async def detach(self, pod: Attachment) -> None:
        """Releases everything of a pod; idempotent."""
        self.on_detaching(pod.id)
        await self._uncancelled.run(self._locked(pod.id, partial(self._detach, pod)))

    async def adopt(self, pods: Sequence[Attachment]) -> list[str]:
        """Caches attachments anew whose files are lost. Returns the ids of their pods."""
        adopted = await asyncio.get_running_loop().run_in_executor(self._threads, lambda: [*map(self._adopt, pods)])
        return [pod.id for pod, was_cached in zip(pods, adopted, strict=True) if not was_cached]

    async def attached(self) -> set[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._cache.ids)

    @property
    def pending(self) -> set[str]:
        """The ids of pods whose DEL has failed."""
        return {id_ for id_, _ in list(self._pending)}

    async def retry_detach(self, id_: str) -> None:
        """Retries the DEL of a pending pod with its cached attachment. Raises RpcError."""
        await self._uncancelled.run(self._locked(id_, partial(self._retry_detach, id_)))

    async def cached(self, id_: str) -> CachedAttachment | None:
        """Returns the attachment of a pod that can be checked. Raises LinuxError."""
        cached = await asyncio.get_running_loop().run_in_executor(self._threads, self._cache.get, id_, IFNAME)
        return cached if cached is not None and is_checkable(cached) else None

    async def check(self, id_: str, now: float) -> CheckOutcome | None:
        """Calls CHECK of a pod's plugins; None for a pod that cannot be checked.

        Raises RpcError when no plugin gave an answer, and as `cached`. `now` is in seconds since 1970.
        """
        return await self._uncancelled.run(self._locked(id_, partial(self._check, id_, now)))

    def check_report(self, id_: str) -> str:
        latest = self._check_results.get(id_)
        return latest.report() if latest is not None else ""

    async def gc(self) -> list[PluginFailed]:
        """Has the plugins of our networks release what belongs to no attached pod. Returns the failures."""
        failures: list[PluginFailed] = []
        for network in await asyncio.to_thread(self._networks_in_use):
            failures += await self._uncancelled.run(self._locked(f"/{network.name}", partial(self._gc, network)))
        return failures

    async def query_status(self) -> str:
        """Calls STATUS of the default network. Returns its error, empty when pods are accepted; kept as readiness."""
        return await self._uncancelled.run(self._locked("/", self._query_status))

    def watch_configs(self, on_change: Callable[[], None]) -> ConfigWatch:
        """Returns a watch of configurations and plugins."""
        return ConfigWatch(
            self._conflists.directory, ENDINGS, self._plugins.directories, on_change, self.limits.config_debounce
        )

    def not_ready_reason(self) -> str:
        """Why no pod can be attached: no network, a plugin that is missing, or an error of STATUS."""
        network = self._conflists.default()
        if network is None:
            return f"no network is configured: {self._conflists.problem() or 'there are no configurations'}"
        for plugin in network.plugins:
            try:
                self._plugins.find(plugin["type"])
            except OSError as error:
                return f"network {network.name}: {error}"
        asked, error_text = self._status_error or (None, "")
        return f"network {network.name}: {error_text}" if asked == network else ""

    def invalid_configurations(self) -> str:
        """Returns the configurations that cannot be used, with reasons; pods may be attached nevertheless."""
        return self._conflists.invalid()

    async def close(self) -> None:
        """Waits for running operations; plugins have deadlines, so this ends."""
        await self._uncancelled.drain(_SHUTDOWN)
        self._threads.shutdown()

    async def _locked(self, key: str, work: Callable[[], T]) -> T:
        """Does blocking work in a thread, one operation at a time per key."""
        async with self._locks.hold(key):
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
            except linux.LinuxError as error:  # a full disk: nothing can be cached, so nothing may be attached
                raise Unavailable(f"CNI: {error}") from error

    def _adopt(self, pod: Attachment) -> bool:
        """Returns whether the attachment is cached as ADD left it."""
        self._attached.add(pod.id)
        try:
            if self._cache.get(pod.id, IFNAME) is not None:
                return True
            if (attachment := self._as_now(pod)) is not None:
                self._cache.write(attachment)
            _log.warning("lost CNI attachment is cached anew", extra={"id": pod.id})
        except (linux.LinuxError, CniError) as error:  # DEL and GC know it as long as this process lives
            _log.error("cannot cache lost CNI attachment", extra={"id": pod.id, "error": str(error)})
        return False

    def _as_now(self, pod: Attachment) -> CachedAttachment | None:
        """Returns the attachment as the pod would be attached now; None without a network. Raises CniError."""
        network = self._conflists.default()
        return None if network is None else _new_attachment(pod, network, cni_args(pod), 0)

    def _attach(self, pod: Attachment) -> tuple[str, ...]:
        network = self._conflists.default()
        if network is None:
            raise Unavailable(self.not_ready_reason())
        self._detach(pod)  # leftovers of an attempt before a crash: ADD must not come twice without DEL
        try:
            args, inode = cni_args(pod), identity(pod.netns)
        except linux.LinuxError as error:
            raise FailedPrecondition(f"CNI: {error}") from error
        except CniError as error:
            raise InvalidArgument(str(error)) from error
        attachment = _new_attachment(pod, network, args, inode)
        with self._gc_lock.shared(network.name):  # from before it is cached: GC spares only what is cached
            self._cache.write(attachment)
            failpoint(CACHED)
            try:
                result = self._chain.add(attachment)
                addresses = self._addresses(attachment, result)
            except AddFailed as failed:
                raise self._undo_add(attachment, failed).rpc_error() from failed
            self._cache.write(msgspec.structs.replace(attachment, result=result))
        self._attached.add(pod.id)
        return addresses

    def _undo_add(self, attachment: CachedAttachment, failed: AddFailed) -> PluginFailed:
        """Calls DEL of the plugins that ran. Returns the error of ADD, with those of DEL."""
        failures = self._chain.undo_add(attachment, failed)
        if failures:
            self._mark_leaving(attachment, failures)
            return failed.error.followed_by(failures)
        self._cache.remove(attachment.id, attachment.ifname)
        self.on_failure()
        return failed.error

    def _addresses(self, attachment: CachedAttachment, output: Object) -> tuple[str, ...]:
        result = results.decode(output, attachment.version)
        ips = [ip for ip in result.ips if _is_in_pod(result, ip.interface, attachment.ifname)]
        if not ips:
            text = f"returned no address for {attachment.ifname}"
            error = PluginFailed(attachment.plugins[-1]["type"], "ADD", text, FailedPrecondition)
            raise AddFailed(error, attachment.plugins)
        if self._prefer != "cni":
            ips.sort(key=lambda ip: f"ipv{ip.address.version}" != self._prefer)
        return tuple(str(ip.address.ip) for ip in ips)

    def _detach(self, pod: Attachment) -> None:
        cached = self._cache.get(pod.id, IFNAME)
        if cached is None and (pod.id in self._attached or self._cache.is_damaged(pod.id, IFNAME)):
            cached = self._as_now(pod)  # plugins release by container id and interface
            if cached is None:
                raise Unavailable(self.not_ready_reason())
        if cached is not None:
            self._delete(cached, pod.netns)

    def _retry_detach(self, id_: str) -> None:
        for key in [key for key in self._pending if key[0] == id_]:
            cached = self._cache.get(*key)
            if cached is None:
                self._pending.discard(key)
            else:
                self._delete(cached, cached.netns)

    def _delete(self, cached: CachedAttachment, netns: str) -> None:
        with self._gc_lock.shared(cached.name):
            failures = self._chain.delete(cached, cached.plugins, verified_netns(netns, cached.netns_inode))
        if failures and self._forgives_missing_plugins and all(isinstance(error, PluginMissing) for error in failures):
            fields = {"id": cached.id, "error": "; ".join(map(str, failures))}
            _log.warning("skipped DEL of plugins that do not exist any more", extra=fields)
            failures = []
        if failures:
            self._mark_leaving(cached, failures)
            raise failures[0].followed_by(failures[1:]).rpc_error() from failures[0]
        self._cache.remove(cached.id, cached.ifname)
        self._check_results.remove(cached.id)
        self._pending.discard((cached.id, cached.ifname))
        self._attached.discard(cached.id)
        if self._status_error is not None:
            self.on_failure()

    def _mark_leaving(self, cached: CachedAttachment, failures: list[PluginFailed]) -> None:
        """Has DEL retried, also after a restart. On a full disk it is retried only while this process lives."""
        key = cached.id, cached.ifname
        if key not in self._pending:
            fields = {"id": cached.id, "error": "; ".join(map(str, failures))}
            _log.error("cannot detach pod from network, will retry", extra=fields)
            failpoint(LEAVING)
            try:
                self._cache.write(msgspec.structs.replace(cached, leaving=True))
            except linux.LinuxError as error:
                _log.error("cannot mark attachment as leaving", extra={"id": cached.id, "error": str(error)})
            self._pending.add(key)
        self.on_failure()

    def _check(self, id_: str, now: float) -> CheckOutcome | None:
        cached = self._cache.get(id_, IFNAME)
        if cached is None or not is_checkable(cached):
            return None
        failure: PluginFailed | None = None
        with self._gc_lock.shared(cached.name):
            try:
                self._chain.check(cached)
            except PluginFailed as error:
                if not is_finding(error):
                    raise error.rpc_error() from error
                failure = error
        return self._check_results.record(id_, failure, now)

    def _networks_in_use(self) -> list[NetworkList]:
        """Networks that support GC and that we attach pods to: of others we do not know the valid attachments."""
        networks = self._conflists.networks()
        names = {cached.name for cached in self._cache.load().values() if cached is not None}
        return [
            network
            for at, network in enumerate(networks)
            if supports_gc(network) and (at == 0 or network.name in names)
        ]

    def _gc(self, network: NetworkList) -> list[PluginFailed]:
        """Calls GC while no pod is attached or detached. Attachments whose files are damaged or missing are spared,
        whatever their network is."""
        with self._gc_lock.exclusive(network.name):
            lost = dict.fromkeys((id_, IFNAME) for id_ in self._attached.copy())
            attachments = {**lost, **self._cache.load(), **manual_cache(self._state, network.name).load()}
            return self._chain.gc(network, valid_attachments(attachments, network.name))

    def _query_status(self) -> str:
        network = self._conflists.default()
        error_text = ""
        try:
            if network is not None:
                self._chain.status(network)
        except PluginFailed as error:
            error_text = str(error)
        self._status_error = (network, error_text) if network is not None and error_text else None
        return error_text


def _new_attachment(pod: Attachment, network: NetworkList, args: str, inode: int) -> CachedAttachment:
    return CachedAttachment(
        id=pod.id,
        ifname=IFNAME,
        netns=pod.netns,
        netns_inode=inode,
        args=args,
        capabilities=capability_args(pod),
        name=network.name,
        version=network.version,
        plugins=network.plugins,
        disable_check=network.disable_check,
    )


def _is_in_pod(result: Result, interface: int | None, ifname: str) -> bool:
    """Whether an address is the pod's own; plugins of CNI 0.2.0 and older do not say which interface has it."""
    if interface is None:
        return True
    link = result.interfaces[interface]
    return link.name == ifname and bool(link.sandbox)
