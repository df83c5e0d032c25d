"""Calls CNI plugins for pods, so that whatever was attached can be detached: after a crash, without the network's
configuration, without the pod's namespace.

Attaching: 1. remember durably what is about to be asked.  2. ADD by each plugin in order, each told the result of the
one before.  3. Remember the result.  When a plugin fails, those that were asked are asked to DEL in reverse order, the
failing one first; what cannot be given back stays remembered.

Detaching: DEL in reverse order with the configuration of ADD's time. A plugin that fails does not keep the others from
giving back; all failures are told, and nothing is forgotten before all have succeeded.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.namespaces import identity
from podwire.protocols.cni import results
from podwire.protocols.cni.config import PREV_RESULT_SINCE, request
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object
from podwire.protocols.cni.verbs import Invocation, is_id
from podwire.protocols.cni.versions import at_least
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument, Unavailable
from podwire.runtime.cni import told
from podwire.runtime.cni.conflists import Conflists
from podwire.runtime.cni.memory import Attached, Memory
from podwire.runtime.cni.plugins import PluginFailed, Plugins
from podwire.runtime.ports import Attachment

_log = logging.getLogger("podwire.runtime.cni")

IFNAME = "eth0"
AT_ONCE = 32
"""Pods that plugins work for at the same time; others wait."""
PREFERENCES = ("ipv4", "ipv6", "cni")
"""Which address is a pod's first: of a family, or as the plugins order them."""

REMEMBERED = declare("runtime.cni-remembered", "an attachment is remembered, no plugin was asked yet")
ADDED = declare("runtime.cni-added", "a plugin has answered ADD, and that is not remembered yet")
DELETED = declare("runtime.cni-deleted", "a plugin has answered DEL, the attachment is still remembered")

T = TypeVar("T")


class Caller:
    """A `Network` made by CNI plugins."""

    def __init__(self, conflists: Conflists, plugins: Plugins, memory: Path, prefer: str = "ipv4") -> None:
        if prefer not in PREFERENCES:
            raise ValueError(f"{prefer!r} is none of {', '.join(PREFERENCES)}")
        self._conflists = conflists
        self._plugins = plugins
        self._memory = Memory(memory)
        self._prefer = prefer
        self._threads = ThreadPoolExecutor(AT_ONCE, "podwire-cni")
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._working: set[asyncio.Task[object]] = set()

    async def attach(self, pod: Attachment) -> tuple[str, ...]:
        """Attach a pod to the default network; its addresses, the preferred one first."""
        if not is_id(pod.id):
            raise InvalidArgument(f"{pod.id!r} is no id that CNI plugins take")
        return await self._in_turn(pod.id, lambda: self._attach(pod))

    async def detach(self, pod: Attachment) -> None:
        """Give everything back; nothing happens for what was never attached."""
        await self._in_turn(pod.id, lambda: self._detach(pod))

    async def attached(self) -> set[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._memory.ids)

    def trouble(self) -> str:
        """Why no pod can be attached: no network, or one whose plugins are not there."""
        network = self._conflists.default()
        if network is None:
            return f"no network is configured: {self._conflists.trouble() or 'there are no configurations'}"
        for each in network.plugins:
            try:
                self._plugins.find(each["type"])
            except OSError as error:
                return f"network {network.name}: {error}"
        return ""

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
            args, inode = told.arguments(pod), identity(pod.netns)
        except linux.LinuxError as error:
            raise FailedPrecondition(f"CNI: {error}") from error
        except CniError as error:
            raise InvalidArgument(str(error)) from error
        attached = Attached(
            id=pod.id,
            ifname=IFNAME,
            netns=pod.netns,
            netns_inode=inode,
            args=args,
            capabilities=told.capabilities(pod),
            name=network.name,
            version=network.version,
            plugins=network.plugins,
        )
        self._memory.write(attached)
        failpoint(REMEMBERED)
        return self._add(attached)

    def _add(self, attached: Attached) -> tuple[str, ...]:
        result: Object | None = None
        asked: list[Object] = []
        try:
            for plugin in attached.plugins:
                asked.append(plugin)
                result = self._added(attached, plugin, result)
                failpoint(ADDED)
            addresses = self._addresses(attached, result)
        except PluginFailed as error:
            ran = asked if error.ran else asked[:-1]
            raise self._undone(attached, ran, error).as_rpc() from error
        self._memory.write(msgspec.structs.replace(attached, result=result))
        return addresses

    def _undone(self, attached: Attached, asked: list[Object], error: PluginFailed) -> PluginFailed:
        """Give back what a failed attempt took; the error, with what could not be given back."""
        left = self._delete(attached, asked, attached.netns)
        if not left:
            self._memory.remove(attached.id, attached.ifname)
            return error
        _log.error("a failed attachment is not undone yet", extra={"id": attached.id, "left": list(map(str, left))})
        return error.followed_by(left)

    def _added(self, attached: Attached, plugin: Object, previous: Object | None) -> Object:
        network = attached.network()
        sent = request(network, plugin, previous, attached.capabilities)
        printed = self._plugins.call(plugin["type"], self._invocation("ADD", attached, attached.netns), sent)
        try:
            result = results.decode(printed, network.version)
            if printed is not None and printed.get("cniVersion") == network.version:
                return printed  # as it is, with what only the plugins understand
            return results.encode(result, network.version)
        except CniError as error:
            raise PluginFailed(plugin["type"], "ADD", f"printed what is no result: {error}") from error

    def _addresses(self, attached: Attached, printed: Object | None) -> tuple[str, ...]:
        result = results.decode(printed, attached.version)
        found = [each for each in result.ips if _in_pod(result, each.interface, attached.ifname)]
        if not found:
            told_ = f"gave {attached.ifname} no address"
            raise PluginFailed(attached.plugins[-1]["type"], "ADD", told_, FailedPrecondition)
        if self._prefer != "cni":
            found.sort(key=lambda each: f"ipv{each.address.version}" != self._prefer)
        return tuple(str(each.address.ip) for each in found)

    def _detach(self, pod: Attachment) -> None:
        try:
            attached = self._memory.read(pod.id, IFNAME)
        except (OSError, msgspec.MsgspecError) as error:
            _log.error("an attachment cannot be read", extra={"id": pod.id, "reason": str(error)})
            attached = self._guessed(pod)
        if attached is None:
            return
        left = self._delete(attached, attached.plugins, _still(pod.netns, attached.netns_inode))
        if left:
            raise left[0].followed_by(left[1:]).as_rpc() from left[0]
        self._memory.remove(attached.id, attached.ifname)

    def _guessed(self, pod: Attachment) -> Attached:
        """Without a readable memory: as the pod would be attached now. Plugins clean up by ids."""
        network = self._conflists.default()
        if network is None:
            raise Unavailable(self.trouble())
        return Attached(
            id=pod.id,
            ifname=IFNAME,
            netns=pod.netns,
            netns_inode=0,
            args=told.arguments(pod),
            capabilities=told.capabilities(pod),
            name=network.name,
            version=network.version,
            plugins=network.plugins,
        )

    def _delete(self, attached: Attached, plugins: Sequence[Object], netns: str) -> list[PluginFailed]:
        """Ask each for DEL, the last first, whatever the others say; who failed."""
        network = attached.network()
        previous = attached.result if at_least(network.version, PREV_RESULT_SINCE) else None
        failed = []
        for plugin in reversed(plugins):
            sent = request(network, plugin, previous, attached.capabilities)
            try:
                self._plugins.call(plugin["type"], self._invocation("DEL", attached, netns), sent)
            except PluginFailed as error:
                if error.code != Code.UNKNOWN_CONTAINER:
                    failed.append(error)
            failpoint(DELETED)
        return failed

    def _invocation(self, verb: str, attached: Attached, netns: str) -> Invocation:
        return Invocation(verb, attached.id, netns, attached.ifname, attached.args, self._plugins.path)


def _in_pod(result: Result, interface: int | None, ifname: str) -> bool:
    """Whether an address is the pod's own; plugins of old versions do not say which interface has it."""
    if interface is None:
        return True
    link = result.interfaces[interface]
    return link.name == ifname and bool(link.sandbox)


def _still(netns: str, inode: int) -> str:
    """The path of a namespace if it is the one that was attached; else none, so that no plugin enters another's."""
    try:
        return netns if netns and inode in (0, identity(netns)) else ""
    except linux.LinuxError:
        return ""
