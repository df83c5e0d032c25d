"""Calls CNI plugins for pods, so that whatever was attached can be detached: after a crash, without the network's
configuration, without the pod's namespace.

Attaching: 1. remember durably what is about to be asked.  2. ADD by each plugin in order, each told the result of the
one before.  3. Remember the result.  When a plugin fails, those that were asked are asked to DEL in reverse order, the
failing one first; what cannot be given back stays remembered.

Detaching: DEL in reverse order with the configuration of ADD's time. A plugin that fails does not stop the DEL of the
others. All failures are reported, and the cached attachment is removed only after all plugins have succeeded: an
attachment that is `pending` is marked as leaving on disk, and the reconciler retries it.
"""

import asyncio
import logging
from collections.abc import Callable
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
from podwire.runtime.cni import arguments
from podwire.runtime.cni.cache import AttachmentCache, CachedAttachment, manual_cache, valid_attachments
from podwire.runtime.cni.chain import AddFailed, Chain, collects, is_checked, verified_netns
from podwire.runtime.cni.check_results import CHECKS, CheckOutcome, CheckResults, gives_word
from podwire.runtime.cni.config_watch import ConfigWatch
from podwire.runtime.cni.conflists import ENDINGS, Conflists
from podwire.runtime.cni.gc_lock import LOCKS, GcLock
from podwire.runtime.cni.plugins import PluginFailed, Plugins
from podwire.runtime.ports import Attachment

_log = logging.getLogger("podwire.runtime.cni")

IFNAME = "eth0"
AT_ONCE = 32
"""Pods that plugins work for at the same time; others wait."""
PREFERENCES = ("ipv4", "ipv6", "cni")
"""Which address is a pod's first: of a family, or as the plugins order them."""

REMEMBERED = declare("runtime.cni-remembered", "an attachment is remembered, no plugin was asked yet")
LEAVING = declare("cni.leaving", "a plugin has failed DEL, and that is not remembered yet")

T = TypeVar("T")


class CniNetwork:
    """A `Network` made by CNI plugins."""

    def __init__(self, conflists: Conflists, plugins: Plugins, memory: Path, prefer: str = "ipv4") -> None:
        if prefer not in PREFERENCES:
            raise ValueError(f"{prefer!r} is none of {', '.join(PREFERENCES)}")
        self._conflists = conflists
        self._plugins = plugins
        self._memory = AttachmentCache(memory, alone=True)
        self._chain = Chain(plugins)
        self._state = memory.parent
        self._exclusion = GcLock(self._state / LOCKS)
        self._prefer = prefer
        self._checks = CheckResults(self._state / CHECKS)
        self._checks.forget_others(self._memory.ids())
        self._threads = ThreadPoolExecutor(AT_ONCE, "podwire-cni")
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._working: set[asyncio.Task[object]] = set()
        self._unwell: tuple[NetworkList, str] | None = None
        self._pending = {key for key, each in self._memory.kept().items() if each is not None and each.leaving}
        self.on_failure: Callable[[], None] = lambda: None
        """Called from any thread when a plugin has failed a pod, or when a pod went while plugins take none."""
        self.on_attaching: Callable[[], None] = lambda: None
        self.on_attached: Callable[[str], None] = lambda _id: None
        self.on_detaching: Callable[[str], None] = lambda _id: None
        """Called from the event loop, before and after; the last one before any plugin is asked."""

    async def attach(self, pod: Attachment) -> tuple[str, ...]:
        """Attach a pod to the default network; its addresses, the preferred one first."""
        if not is_id(pod.id):
            raise InvalidArgument(f"{pod.id!r} is no id that CNI plugins take")
        self.on_attaching()
        addresses = await self._in_turn(pod.id, lambda: self._attach(pod))
        self.on_attached(pod.id)
        return addresses

    async def detach(self, pod: Attachment) -> None:
        """Give everything back; nothing happens for what was never attached."""
        self.on_detaching(pod.id)
        await self._in_turn(pod.id, lambda: self._detach(pod))

    async def attached(self) -> set[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._memory.ids)

    @property
    def pending(self) -> set[str]:
        """The ids of pods that a plugin has failed to detach."""
        return {id_ for id_, _ in list(self._pending)}

    async def retry(self, id_: str) -> None:
        """Try again to detach a pod that is pending, with what is remembered of it. Raises RpcError."""
        await self._in_turn(id_, lambda: self._retry(id_))

    async def cached(self, id_: str) -> CachedAttachment | None:
        """What is remembered of a pod that can be checked. Raises OSError or MsgspecError when it cannot be read."""
        attached = await asyncio.get_running_loop().run_in_executor(self._threads, self._memory.read, id_, IFNAME)
        return attached if attached is not None and is_checked(attached) else None

    async def check(self, id_: str, now: float) -> CheckOutcome | None:
        """Ask the plugins whether a pod's network is as they made it; None for one that is not checked.

        Raises RpcError when no plugin gave its word, and as `recall`. `now` is in seconds since 1970.
        """
        return await self._in_turn(id_, lambda: self._check(id_, now))

    def checked(self, id_: str) -> str:
        known = self._checks.get(id_)
        return known.shown() if known is not None else ""

    async def gc(self) -> list[PluginFailed]:
        """Have the plugins of our networks give back what belongs to no pod that is attached; who failed."""
        failed: list[PluginFailed] = []
        for network in await asyncio.to_thread(self._used):
            failed += await self._in_turn(f"/{network.name}", partial(self._gc, network))
        return failed

    async def query_status(self) -> str:
        """Ask the plugins of the default network whether they take pods; what they say instead, for `trouble`, too."""
        return await self._in_turn("/", self._ask_status)

    def places(self, changed: Callable[[], None]) -> ConfigWatch:
        """Where configurations and plugins are, to be watched."""
        return ConfigWatch(self._conflists.directory, ENDINGS, self._plugins.directories, changed)

    def trouble(self) -> str:
        """Why no pod can be attached: no network, one whose plugins are not there, or say that they are not ready."""
        network = self._conflists.default()
        if network is None:
            return f"no network is configured: {self._conflists.trouble() or 'there are no configurations'}"
        for each in network.plugins:
            try:
                self._plugins.find(each["type"])
            except OSError as error:
                return f"network {network.name}: {error}"
        asked, said = self._unwell or (None, "")
        return f"network {network.name}: {said}" if asked == network else ""

    async def close(self) -> None:
        """Wait for what is under way; plugins have deadlines, so this ends."""
        await asyncio.gather(*self._working, return_exceptions=True)
        self._threads.shutdown()

    async def _in_turn(self, id_: str, work: Callable[[], T]) -> T:
        """One operation at a time per pod, each to its end: a caller that gives up does not stop a plugin halfway."""
        task = asyncio.create_task(self._turn(id_, work))
        self._working.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._working.discard(task)
        if not task.cancelled():
            task.exception()  # told to the caller, if that is still there

    async def _turn(self, id_: str, work: Callable[[], T]) -> T:
        lock, waiting = self._turns.get(id_, (asyncio.Lock(), 0))
        self._turns[id_] = lock, waiting + 1
        try:
            async with lock:
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except linux.LinuxError as error:  # the disk: nothing can be remembered, so nothing is attached
            raise Unavailable(f"CNI: {error}") from error
        finally:
            lock, waiting = self._turns.pop(id_)
            if waiting > 1:
                self._turns[id_] = lock, waiting - 1

    def _attach(self, pod: Attachment) -> tuple[str, ...]:
        network = self._conflists.default()
        if network is None:
            raise Unavailable(self.trouble())
        self._detach(pod)  # what an attempt before a crash left: ADD never comes twice without DEL
        try:
            args, inode = arguments.arguments(pod), identity(pod.netns)
        except linux.LinuxError as error:
            raise FailedPrecondition(f"CNI: {error}") from error
        except CniError as error:
            raise InvalidArgument(str(error)) from error
        attached = _described(pod, network, args, inode)
        with self._exclusion.shared(network.name):  # from before it is remembered: GC spares what is remembered
            self._memory.write(attached)
            failpoint(REMEMBERED)
            return self._add(attached)

    def _add(self, attached: CachedAttachment) -> tuple[str, ...]:
        try:
            result = self._chain.add(attached)
            addresses = self._addresses(attached, result)
        except AddFailed as failed:
            raise self._undone(attached, failed).as_rpc() from failed
        self._memory.write(msgspec.structs.replace(attached, result=result))
        return addresses

    def _undone(self, attached: CachedAttachment, failed: AddFailed) -> PluginFailed:
        """Give back what a failed attempt took; the error, with what could not be given back."""
        left = self._chain.delete(attached, failed.ran, attached.netns)
        if left:
            self._remember_leaving(attached, left)
        else:
            self._memory.remove(attached.id, attached.ifname)
            self.on_failure()
        return failed.error.followed_by(left) if left else failed.error

    def _addresses(self, attached: CachedAttachment, printed: Object) -> tuple[str, ...]:
        result = results.decode(printed, attached.version)
        found = [each for each in result.ips if _in_pod(result, each.interface, attached.ifname)]
        if not found:
            told_ = f"gave {attached.ifname} no address"
            error = PluginFailed(attached.plugins[-1]["type"], "ADD", told_, FailedPrecondition)
            raise AddFailed(error, attached.plugins)
        if self._prefer != "cni":
            found.sort(key=lambda each: f"ipv{each.address.version}" != self._prefer)
        return tuple(str(each.address.ip) for each in found)

    def _detach(self, pod: Attachment) -> None:
        try:
            attached = self._memory.read(pod.id, IFNAME)
        except (OSError, msgspec.MsgspecError) as error:
            _log.error("an attachment cannot be read", extra={"id": pod.id, "reason": str(error)})
            attached = self._guessed(pod)
        if attached is not None:
            self._delete(attached, pod.netns)

    def _check(self, id_: str, now: float) -> CheckOutcome | None:
        attached = self._memory.read(id_, IFNAME)
        if attached is None or not is_checked(attached):
            return None
        failure: PluginFailed | None = None
        with self._exclusion.shared(attached.name):
            try:
                self._chain.check(attached)
            except PluginFailed as error:
                if not gives_word(error):
                    raise error.as_rpc() from error
                failure = error
        return self._checks.note(id_, failure, now)

    def _retry(self, id_: str) -> None:
        for key in [each for each in self._pending if each[0] == id_]:
            try:
                attached = self._memory.read(*key)
            except (OSError, msgspec.MsgspecError) as error:
                raise Unavailable(f"CNI: what is remembered of {id_} cannot be read: {error}") from error
            if attached is None:
                self._pending.discard(key)
            else:
                self._delete(attached, attached.netns)

    def _delete(self, attached: CachedAttachment, netns: str) -> None:
        with self._exclusion.shared(attached.name):
            left = self._chain.delete(attached, attached.plugins, verified_netns(netns, attached.netns_inode))
        if left:
            self._remember_leaving(attached, left)
            raise left[0].followed_by(left[1:]).as_rpc() from left[0]
        self._forget(attached)

    def _remember_leaving(self, attached: CachedAttachment, left: list[PluginFailed]) -> None:
        """It will be tried again, also after a restart. A full disk keeps nobody from trying while we live."""
        key = attached.id, attached.ifname
        if key not in self._pending:
            _log.error("a pod is not detached yet", extra={"id": attached.id, "left": list(map(str, left))})
            failpoint(LEAVING)
            try:
                self._memory.write(msgspec.structs.replace(attached, leaving=True))
            except linux.LinuxError as error:
                _log.error("what is to be detached is not written down", extra={"id": attached.id, "why": str(error)})
            self._pending.add(key)
        self.on_failure()

    def _forget(self, attached: CachedAttachment) -> None:
        self._memory.remove(attached.id, attached.ifname)
        self._checks.forget(attached.id)
        self._pending.discard((attached.id, attached.ifname))
        if self._unwell is not None:
            self.on_failure()

    def _guessed(self, pod: Attachment) -> CachedAttachment:
        """Without a readable memory: as the pod would be attached now. Plugins clean up by ids."""
        network = self._conflists.default()
        if network is None:
            raise Unavailable(self.trouble())
        return _described(pod, network, arguments.arguments(pod), 0)

    def _used(self) -> list[NetworkList]:
        """Networks that tidy up and that we attach pods to; whoever uses another one knows what stays there."""
        networks = self._conflists.networks()
        names = {each.name for each in self._memory.kept().values() if each is not None}
        return [each for at, each in enumerate(networks) if collects(each) and (at == 0 or each.name in names)]

    def _gc(self, network: NetworkList) -> list[PluginFailed]:
        """With nobody attaching or detaching meanwhile. What cannot be read stays, whatever its network is."""
        with self._exclusion.exclusive(network.name):
            kept = self._memory.kept() | manual_cache(self._state, network.name).kept()
            return self._chain.gc(network, valid_attachments(kept, network.name))

    def _ask_status(self) -> str:
        network = self._conflists.default()
        said = ""
        try:
            if network is not None:
                self._chain.status(network)
        except PluginFailed as error:
            said = str(error)
        self._unwell = (network, said) if network is not None and said else None
        return said


def _described(pod: Attachment, network: NetworkList, args: str, inode: int) -> CachedAttachment:
    return CachedAttachment(
        id=pod.id,
        ifname=IFNAME,
        netns=pod.netns,
        netns_inode=inode,
        args=args,
        capabilities=arguments.capabilities(pod),
        name=network.name,
        version=network.version,
        plugins=network.plugins,
        disable_check=network.disable_check,
    )


def _in_pod(result: Result, interface: int | None, ifname: str) -> bool:
    """Whether an address is the pod's own; plugins of old versions do not say which interface has it."""
    if interface is None:
        return True
    link = result.interfaces[interface]
    return link.name == ifname and bool(link.sandbox)
