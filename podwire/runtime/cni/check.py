"""Calls CHECK for attached pods and reports when a pod's network is not as ADD made it.

| a pod is checked | |
|---|---|
| a second after it was attached | |
| in turn, once per interval | pods are spread over the interval, and wait while others are being attached |
| at once | after a netlink event in its namespace, or on the host when it may affect the pod |

A pod's namespace is watched from its first check until it is detached; not earlier, so that its start is not slower.
The keyed lock of CniNetwork keeps a check and the ADD or DEL of the same pod apart.

With the action `restart` a pod that has lost its network is given up, so that its kubelet makes another. Exceptions: a
pod whose CHECK never succeeded (the plugins' ADD and CHECK disagree, and a new pod would not be better), and a first
failure (replacing a route removes it for a moment), which is confirmed by a second check.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, NamedTuple

import msgspec

from podwire.interfaces import Clock
from podwire.linux.errors import LinuxError
from podwire.linux.net.monitor import Changed, Monitor
from podwire.linux.net.netlink import NETFILTER
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link
from podwire.protocols.cni import results
from podwire.protocols.cni.errors import CniError
from podwire.protocols.grpc_status import RpcError
from podwire.runtime.cni.affected_pods import AffectedPods
from podwire.runtime.cni.cache import CachedAttachment
from podwire.runtime.cni.check_schedule import Schedule, ScheduledCheck, finish, phase
from podwire.runtime.cni.netns_watch import NetnsWatch
from podwire.runtime.cni.network import CniNetwork

_log = logging.getLogger("podwire.runtime.cni")

INTERVAL = 60.0
REPORT, RESTART = ACTIONS = ("report", "restart")
_HOST_LINKS, _HOST_RULES = "/links", "/nft"  # not valid as a pod's id


class CheckSettings(NamedTuple):
    """The interval of checks, and the action for a pod whose network is lost."""

    interval: float = INTERVAL
    """Seconds; 0 for never."""
    action: Literal["report", "restart"] = "report"


DEFAULT_SETTINGS = CheckSettings()


class PodCallbacks(NamedTuple):
    """Callbacks of the checker, by the pods' ids."""

    is_ready: Callable[[str], bool]
    on_result_changed: Callable[[str], None]
    lose_network: Callable[[str], Awaitable[None]]
    """Gives up the pod with its network."""


class Checker:
    """One task for a CniNetwork, and one per running check."""

    def __init__(self, network: CniNetwork, settings: CheckSettings, pods: PodCallbacks, clock: Clock) -> None:
        self._network = network
        self._limits = network.limits
        self._schedule = Schedule(settings.interval, self._limits)
        self._action = settings.action
        self._pods = pods
        self._clock = clock
        self._checks: dict[str, ScheduledCheck] = {}
        self._watched: set[str] = set()
        self._failing: set[str] = set()
        self._errors: dict[str, str] = {}
        """Why pods could not be checked the last time."""
        self._affected = AffectedPods()
        self._watch = NetnsWatch(self._on_changes, self._limits.netlink_debounce)
        self._quiet = 0.0
        self._wake = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the task, unless the interval is 0."""
        if not self._schedule.interval:
            yield
            return
        now, within = _now(), min(self._schedule.interval, self._limits.after_restart)
        for id_ in await self._network.attached():
            if self._pods.is_ready(id_):
                self._checks[id_] = ScheduledCheck(now + phase(id_) * within)
        network = self._network
        network.on_attaching, network.on_attached = self._before_attach, self._after_attach
        network.on_detaching = self.remove
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run(), name="cni checker")
            try:
                yield
            finally:
                network.on_attaching = lambda: None
                network.on_attached = network.on_detaching = lambda _id: None
                self._watch.close()
                task.cancel()

    def remove(self, id_: str) -> None:
        """Stops checking a pod and closes its namespace."""
        self._checks.pop(id_, None)
        self._watched.discard(id_)
        self._failing.discard(id_)
        self._errors.pop(id_, None)
        self._affected.remove_pod(id_)
        self._watch.remove(id_)

    def _before_attach(self) -> None:
        self._quiet = _now() + self._limits.quiet

    def _after_attach(self, id_: str) -> None:
        self._checks[id_] = ScheduledCheck(_now() + self._limits.first_check)
        self._wake.set()

    def _on_changes(self, key: str, changes: list[Changed]) -> None:
        affected = {key} if key in self._checks else set()
        if key in (_HOST_LINKS, _HOST_RULES):
            affected = {id_ for change in changes for id_ in self._affected.of(change, self._failing)}
        for id_ in affected & self._checks.keys():
            self._schedule.hint(self._checks[id_], _now())
            self._wake.set()

    async def _run(self) -> None:
        await self._watch_host()
        at_once = self._limits.concurrent_checks
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                busy = sum(check.busy for check in self._checks.values())
                waiting = sorted(
                    (self._schedule.starts_at(check, self._quiet), id_)
                    for id_, check in self._checks.items()
                    if not check.busy
                )
                due = [id_ for at, id_ in waiting if at <= _now()][: at_once - busy]
                for id_ in due:
                    check = self._checks[id_]
                    hinted = self._schedule.begin(check, id_, _now())
                    tasks.create_task(self._check_pod(id_, check, hinted), name=f"check {id_}")
                full = busy + len(due) >= at_once or len(due) == len(waiting)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(None if full else waiting[len(due)][0]):
                        await self._wake.wait()

    async def _watch_host(self) -> None:
        """Watches the host's links and rules. Without that, changes on the host are noticed in turn."""
        try:
            monitors, links = await asyncio.to_thread(_open_host)
        except LinuxError as error:
            _log.warning("cannot watch the host's network, CHECK runs only in turn", extra={"error": str(error)})
            return
        for key, monitor in monitors.items():
            self._watch.add(key, monitor)
        self._affected.set_links(links)

    async def _check_pod(self, id_: str, check: ScheduledCheck, hinted: bool) -> None:
        changed = False
        try:
            if id_ in self._watched or await self._watch_pod(id_, check):
                changed = await self._call_check(id_, check)
            self._errors.pop(id_, None)
        except (RpcError, OSError, CniError, msgspec.MsgspecError) as error:
            if id_ in self._checks and self._errors.get(id_) != str(error):  # logged once, not with every try
                self._errors[id_] = str(error)
                _log.warning("cannot check network of pod", extra={"id": id_, "error": str(error)})
        finally:
            finish(check, hinted=hinted, changed=changed)
            check.busy = False
            self._wake.set()

    async def _watch_pod(self, id_: str, check: ScheduledCheck) -> bool:
        """Watches a pod's namespace, from before its first check, so that no change is missed in between.

        Returns whether the pod is to be checked.
        """
        cached = await self._network.cached(id_)
        if cached is None:
            self.remove(id_)
            return False
        monitor = await asyncio.to_thread(_open_monitor, cached.netns)
        if self._checks.get(id_) is not check:  # the pod was detached meanwhile
            if monitor is not None:
                monitor.close()
            return False
        if monitor is not None:
            self._watch.add(id_, monitor)
            self._watched.add(id_)
        self._affected.add_pod(id_, _host_links(cached))
        return True

    async def _call_check(self, id_: str, check: ScheduledCheck) -> bool:
        """Returns whether the result differs from the one before."""
        outcome = await self._network.check(id_, self._clock.wall())
        if self._checks.get(id_) is not check or not self._pods.is_ready(id_):
            return False
        if outcome is None:
            self.remove(id_)
            return False
        (self._failing.discard if outcome.after.ok else self._failing.add)(id_)
        if outcome.changed:
            if outcome.after.ok:
                _log.info("CHECK of pod succeeds again", extra={"id": id_})
            else:
                _log.warning("CHECK of pod failed", extra={"id": id_, "error": outcome.after.message})
            self._pods.on_result_changed(id_)
        if self._action == RESTART and not outcome.after.ok and outcome.after.was_ok:
            if outcome.before is None or outcome.before.ok:
                check.due = min(check.due, _now() + self._limits.confirm)
            else:
                self.remove(id_)
                await self._pods.lose_network(id_)
        return outcome.changed


def _open_host() -> tuple[dict[str, Monitor], list[Link]]:
    """Opens the monitors before the links are listed, so that no change is missed in between."""
    with contextlib.ExitStack() as undo:
        monitors = {_HOST_LINKS: Monitor()}
        undo.callback(monitors[_HOST_LINKS].close)
        monitors[_HOST_RULES] = Monitor(protocol=NETFILTER)
        undo.callback(monitors[_HOST_RULES].close)
        with KernelNetwork() as host:
            links = host.links.list()
        undo.pop_all()
    return monitors, links


def _open_monitor(netns: str) -> Monitor | None:
    """Returns None when the namespace cannot be watched: then CHECK runs in turn, and says what is wrong with it."""
    try:
        return Monitor(netns)
    except LinuxError as error:
        fields = {"netns": netns, "error": str(error)}
        _log.warning("cannot watch network namespace of pod, CHECK runs only in turn", extra=fields)
        return None


def _host_links(cached: CachedAttachment) -> list[str]:
    result = results.decode(cached.result, cached.version)
    return [interface.name for interface in result.interfaces if not interface.sandbox]


def _now() -> float:
    return asyncio.get_running_loop().time()
