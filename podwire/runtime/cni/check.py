"""Asks CNI plugins whether the networks of pods are still as they made them, and has it told when one is not.

| when a pod is checked | |
|---|---|
| a second after it was attached | |
| in turn, once in the interval | pods are spread over it, and wait while others are being attached |
| at once | when the kernel tells of a change in its namespace, or of one on the host that may concern it |

A pod's namespace is watched from its first check on, so that its start is not slower for it, and until it is detached.
A check and the ADD or DEL of the same pod never meet: the caller lets them take turns.

With `restart` a pod whose network is lost is given up, so that its kubelet makes another. Not one that CHECK has never
found whole: there the plugins' ADD and CHECK disagree, and a new pod would not be better. And not at the first word:
who replaces a route takes it away first.
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
from podwire.runtime.cni import check_schedule
from podwire.runtime.cni.affected_pods import AffectedPods
from podwire.runtime.cni.cache import CachedAttachment
from podwire.runtime.cni.check_results import CheckOutcome
from podwire.runtime.cni.check_schedule import ScheduledCheck
from podwire.runtime.cni.netns_watch import NetnsWatch
from podwire.runtime.cni.network import CniNetwork

_log = logging.getLogger("podwire.runtime.cni")

INTERVAL = 60.0
REPORT, RESTART = ACTIONS = ("report", "restart")
AT_ONCE = 4
"""Pods that are checked at the same time."""
_HOST_LINKS, _HOST_RULES = "/links", "/nft"  # no pod has such an id


class CheckSettings(NamedTuple):
    interval: float = INTERVAL
    """Seconds; 0 for never."""
    action: Literal["report", "restart"] = "report"


REPORTING = CheckSettings()


class PodCallbacks(NamedTuple):
    """What the checker asks and tells of pods, by their ids."""

    is_ready: Callable[[str], bool]
    tell: Callable[[str], None]
    """CHECK finds something else than before."""
    lose_network: Callable[[str], Awaitable[None]]
    """The network is to be given up, and the pod with it."""


class Checker:
    """One task beside a caller, and one for each check that is under way."""

    def __init__(self, caller: CniNetwork, checking: CheckSettings, pods: PodCallbacks, clock: Clock) -> None:
        self._caller = caller
        self._interval, self._action = checking
        self._pods = pods
        self._clock = clock
        self._turns: dict[str, ScheduledCheck] = {}
        self._watched: set[str] = set()
        self._failing: set[str] = set()
        self._unknown: dict[str, str] = {}
        """Why pods were not checked the last time."""
        self._concerns = AffectedPods()
        self._watcher = NetnsWatch(self._hear)
        self._quiet = 0.0
        self._wake = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if not self._interval:
            yield
            return
        await self._take_up()
        caller = self._caller
        caller.on_attaching, caller.on_attached, caller.on_detaching = self._attaching, self._attached, self.leave
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run(), name="cni checker")
            try:
                yield
            finally:
                caller.on_attaching, caller.on_attached, caller.on_detaching = _nothing, _nobody, _nobody
                self._watcher.close()
                task.cancel()

    def leave(self, id_: str) -> None:
        """It is going: nothing of it is looked at any more, and its namespace is let go."""
        self._turns.pop(id_, None)
        self._watched.discard(id_)
        self._failing.discard(id_)
        self._unknown.pop(id_, None)
        self._concerns.leave(id_)
        self._watcher.remove(id_)

    async def _take_up(self) -> None:
        now, within = _now(), min(self._interval, check_schedule.AFTER_RESTART)
        for each in await self._caller.attached():
            if self._pods.is_ready(each):
                self._turns[each] = ScheduledCheck(now + check_schedule.phase(each) * within)

    def _attaching(self) -> None:
        self._quiet = _now() + check_schedule.QUIET

    def _attached(self, id_: str) -> None:
        self._turns[id_] = ScheduledCheck(_now() + check_schedule.FIRST)
        self._wake.set()

    def _hear(self, key: str, changes: list[Changed]) -> None:
        concerned = {key} if key in self._turns else set()
        if key in (_HOST_LINKS, _HOST_RULES):
            concerned = {id_ for each in changes for id_ in self._concerns.of(each, self._failing)}
        for each in concerned & self._turns.keys():
            check_schedule.hint(self._turns[each], _now(), self._interval)
            self._wake.set()

    async def _run(self) -> None:
        await self._watch_host()
        async with asyncio.TaskGroup() as checks:
            while True:
                self._wake.clear()
                busy = sum(each.busy for each in self._turns.values())
                waiting = sorted(
                    (check_schedule.starts_at(turn, self._quiet), id_)
                    for id_, turn in self._turns.items()
                    if not turn.busy
                )
                due = [id_ for at, id_ in waiting if at <= _now()][: AT_ONCE - busy]
                for each in due:
                    turn = self._turns[each]
                    hinted = check_schedule.begin(turn, each, _now(), self._interval)
                    checks.create_task(self._attend(each, turn, hinted), name=f"check {each}")
                full = busy + len(due) >= AT_ONCE or len(due) == len(waiting)
                await self._sleep(None if full else waiting[len(due)][0])

    async def _sleep(self, until: float | None) -> None:
        """Until then, or until something happens."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._wake.wait()

    async def _watch_host(self) -> None:
        """Without it, changes on the host are noticed in turn."""
        try:
            opened, links = await asyncio.to_thread(_open_host)
        except LinuxError as error:
            _log.warning("changes on the host are not noticed at once", extra={"reason": str(error)})
            return
        for key, each in opened.items():
            self._watcher.add(key, each)
        self._concerns.see(links)

    async def _attend(self, id_: str, turn: ScheduledCheck, hinted: bool) -> None:
        news = False
        try:
            if id_ in self._watched or await self._watch(id_, turn):
                news = await self._check(id_, turn)
            self._unknown.pop(id_, None)
        except (RpcError, OSError, CniError, msgspec.MsgspecError) as error:
            self._tell_unknown(id_, str(error))
        finally:
            check_schedule.found(turn, hinted, news)
            turn.busy = False
            self._wake.set()

    def _tell_unknown(self, id_: str, why: str) -> None:
        """Once, and not with every try."""
        if id_ in self._turns and self._unknown.get(id_) != why:
            self._unknown[id_] = why
            _log.warning("a pod's network is not checked", extra={"id": id_, "reason": why})

    async def _watch(self, id_: str, turn: ScheduledCheck) -> bool:
        """Whether it is to be checked. Watched from before its first check, so nothing comes between the two."""
        attached = await self._caller.cached(id_)
        if attached is None:
            self.leave(id_)
            return False
        monitor = await asyncio.to_thread(_opened, attached.netns)
        if self._turns.get(id_) is not turn:  # it went meanwhile
            if monitor is not None:
                monitor.close()
            return False
        if monitor is not None:
            self._watcher.add(id_, monitor)
            self._watched.add(id_)
        self._concerns.follow(id_, _host_links(attached))
        return True

    async def _check(self, id_: str, turn: ScheduledCheck) -> bool:
        """Whether it finds something else than before."""
        findings = await self._caller.check(id_, self._clock.wall())
        if self._turns.get(id_) is not turn or not self._pods.is_ready(id_):
            return False
        if findings is None:
            self.leave(id_)
            return False
        (self._failing.discard if findings.after.ok else self._failing.add)(id_)
        if findings.news:
            _tell_log(id_, findings)
            self._pods.tell(id_)
        if self._action == RESTART and not findings.after.ok and findings.after.was_ok:
            await self._confirm(id_, turn, findings)
        return findings.news

    async def _confirm(self, id_: str, turn: ScheduledCheck, findings: CheckOutcome) -> None:
        if findings.before is None or findings.before.ok:
            turn.due = min(turn.due, _now() + check_schedule.CONFIRM)
        else:
            self.leave(id_)
            await self._pods.lose_network(id_)


def _open_host() -> tuple[dict[str, Monitor], list[Link]]:
    """Watched from before the links are listed, so that no change is lost in between."""
    with contextlib.ExitStack() as undo:
        opened = {_HOST_LINKS: Monitor()}
        undo.callback(opened[_HOST_LINKS].close)
        opened[_HOST_RULES] = Monitor(protocol=NETFILTER)
        undo.callback(opened[_HOST_RULES].close)
        with KernelNetwork() as host:
            links = host.links.list()
        undo.pop_all()
    return opened, links


def _opened(netns: str) -> Monitor | None:
    """None when it cannot be watched: then changes are noticed in turn, and CHECK says what is wrong with it."""
    try:
        return Monitor(netns)
    except LinuxError as error:
        _log.warning("changes of a pod's network are not noticed at once", extra={"of": netns, "reason": str(error)})
        return None


def _host_links(attached: CachedAttachment) -> list[str]:
    made = results.decode(attached.result, attached.version)
    return [each.name for each in made.interfaces if not each.sandbox]


def _tell_log(id_: str, findings: CheckOutcome) -> None:
    if findings.after.ok:
        _log.info("a pod's network is as it was made again", extra={"id": id_})
    else:
        _log.warning("a pod's network is not as it was made", extra={"id": id_, "reason": findings.after.told})


def _now() -> float:
    return asyncio.get_running_loop().time()


def _nothing() -> None:
    """Nobody listens any more."""


def _nobody(_id: str) -> None:
    """Nobody listens any more."""
