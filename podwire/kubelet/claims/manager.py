"""The claims of this node's pods: prepared by their drivers before anything is started, let go of when it has ended."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from podwire.kubelet.claims import pod_claims, required_plugins, status
from podwire.kubelet.claims.checkpoint import ClaimCheckpoint
from podwire.kubelet.claims.claim_info import ClaimInfo, ClaimUser
from podwire.kubelet.claims.claim_watches import CLAIMS, ClaimWatches
from podwire.kubelet.claims.device_health import Key
from podwire.kubelet.claims.drivers import Drivers
from podwire.kubelet.claims.errors import ClaimsNotReady, NotUnprepared
from podwire.kubelet.claims.pod_claims import PodClaimRef
from podwire.kubelet.claims.preparation import ClaimPreparation, gather
from podwire.kubelet.claims.resource_slices import ResourceSlices
from podwire.kubelet.claims.settings import ClaimSettings
from podwire.kubelet.ports import Api, PluginSockets
from podwire.linux.proc.processes import boot_id
from podwire.objects import claims
from podwire.objects.claims import ResourceClaim
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.podresources import podresources_pb2 as pb

log = logging.getLogger(__name__)

RELEASE_SECONDS = 1.0, 30.0
"""Between two tries to have drivers let go, if nothing tells earlier that it may work now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told what."""

    waiting: Callable[[], None]
    """Whoever waits for claims may have them now."""
    pod: Callable[[str], None]
    """Something that the pod of that uid uses or waits for is not as it was."""
    reconcile: Callable[[], None]
    """It is time to look whether all pods that use claims are still there."""
    slow: Callable[[Pod, str], None]
    """A pod waits for drivers, for longer than usual; for which."""
    trouble: Callable[[str, ClaimUser, NotUnprepared], None]
    """A pod of that namespace cannot end yet."""


class ClaimManager:
    """`loaded` is set when it is known who uses what: before that nobody may ask."""

    def __init__(
        self, api: Api, door: PluginSockets, root: Path, node: str, settings: ClaimSettings, listeners: Listeners
    ) -> None:
        self._api = api
        self._settings = settings
        self._listeners = listeners
        self._ledger = ClaimCheckpoint(root / "claims")
        self.drivers = Drivers(door, settings, self._moved, self._changed)
        self._claims = ClaimPreparation(self._ledger, self.drivers, boot_id())
        self._slices = ResourceSlices(api, node, self.drivers.connected, settings.slices)
        self._watches = ClaimWatches(api, listeners.pod)
        self._news, self._unused = asyncio.Event(), asyncio.Event()
        self._settled = False
        """Whether drivers have had the time to come."""
        self.loaded = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.to_thread(self._ledger.load)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.drivers.run(self.loaded), name="drivers")
            group.create_task(self._slices.run(), name="devices of drivers that are gone")
            group.create_task(self._watches.run(), name="claims that pods wait for")
            group.create_task(self._reconcile(), name="claims of pods that are gone")
            group.create_task(self._let_go_of_lost(), name="claims whose records are damaged")

    async def _reconcile(self) -> None:
        while True:
            await asyncio.sleep(self._settings.reconcile)
            self._settled = True
            self._listeners.reconcile()

    def look_for_lost(self, pods: Iterable[Pod]) -> None:
        """These are all pods of this node. When each has its claims, a damaged record tells of nobody's."""
        if self._settled and self._ledger.lost and all(each.finished or self._has(each) for each in pods):
            self._unused.set()

    def _has(self, pod: Pod) -> bool:
        try:
            return self.has(pod)
        except ClaimsNotReady:
            return False

    async def _let_go_of_lost(self) -> None:
        while True:
            await self._unused.wait()
            self._unused.clear()
            for uid in tuple(self._ledger.lost):
                told = {"claim": self._ledger.lost[uid].name, "uid": uid}
                try:
                    await self._claims.let_go_of_lost(uid, self.drivers.names)
                except NotUnprepared as error:
                    log.warning("a claim that nobody uses is not unprepared yet", extra={**told, "why": str(error)})
                else:
                    log.info("nothing is left of a claim whose record was damaged", extra=told)

    @property
    def uids(self) -> set[str]:
        """Pods that use claims."""
        return {user.uid for each in self._ledger.records.values() for user in each.users}

    async def prepare(self, pod: Pod) -> None:
        """Have all claims of a pod prepared, before anything is made for it. ClaimsNotReady."""
        if not pod_claims.wants(pod):
            return
        seen: dict[str, str] = {}
        try:
            found = await self._fetch(pod, pod_claims.uses(pod), seen)
            with self._told_if_slow(pod, found):
                await self._claims.prepare(ClaimUser(uid=pod.uid, name=pod.name), found)
        except ClaimsNotReady:
            self._watches.wait(pod.uid, pod.namespace, seen)
            raise
        self._watches.forget(pod.uid)

    @contextlib.contextmanager
    def _told_if_slow(self, pod: Pod, wanted: Sequence[ResourceClaim]) -> Iterator[None]:
        """A driver that hangs has its time, in which nobody else would say why nothing happens."""
        slow = self._settings.slow
        drivers = ", ".join(sorted({each.driver for claim in wanted for each in claim.allocated}))
        names = ", ".join(each.name for each in wanted)
        told = f"DRA driver {drivers} has not prepared ResourceClaim {names} for {slow:g} s"
        telling = asyncio.get_running_loop().call_later(slow, self._listeners.slow, pod, told)
        try:
            yield
        finally:
            telling.cancel()

    async def _fetch(self, pod: Pod, wanted: Iterable[PodClaimRef], seen: dict[str, str]) -> list[ResourceClaim]:
        """From the API server, all at the same time, and none that the pod must not use. ClaimsNotReady."""
        named = list(wanted)
        found = await gather(self._get(pod, use, seen) for use in named)
        for use, claim in zip(named, found, strict=True):
            pod_claims.check(pod, use, claim)
            for driver in sorted({each.driver for each in claim.allocated}):
                if driver not in self.drivers:
                    raise ClaimsNotReady(f"DRA driver {driver} is not registered")
        return found

    async def _get(self, pod: Pod, use: PodClaimRef, seen: dict[str, str]) -> ResourceClaim:
        seen[use.name] = ""
        try:
            claim = claims.read(await self._api.get(CLAIMS, use.name, pod.namespace))
        except (ApiError, ClientError, msgspec.ValidationError) as error:
            raise ClaimsNotReady(f"fetch ResourceClaim {use.name}: {error}") from error
        seen[use.name] = pod_claims.claim_fingerprint(claim)
        return claim

    async def devices(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """The CDI devices of a container; to be asked right before it is made. ClaimsNotReady.

        None of a pod's containers starts unless all its claims are prepared, whichever it wants itself.
        """
        if not pod_claims.wants(pod):
            return ()
        if not self.has(pod):
            await self.prepare(pod)
        return pod_claims.cdi_devices(pod_claims.device_requests(pod, container), self._records(pod))

    def has(self, pod: Pod) -> bool:
        """Whether all its claims were prepared for it. ClaimsNotReady when it cannot be told which they are."""
        if not pod_claims.wants(pod):
            return True
        prepared = {each.name for each in self._ledger.of_pod(pod.uid) if each.prepared}
        return all(each.name in prepared for each in pod_claims.uses(pod))

    def _records(self, pod: Pod) -> dict[str, ClaimInfo]:
        """By name."""
        return {each.name: each for each in self._ledger.of_pod(pod.uid)}

    async def unprepare(self, uid: str) -> None:
        """Nothing of the pod runs any more: drivers let go of what nobody else uses. NotUnprepared."""
        self._watches.forget(uid)
        if await self._claims.unprepare(uid):
            self._tell()

    async def release(self, uid: str) -> None:
        """The same, until it is done."""
        pause, longest = RELEASE_SECONDS
        while True:
            news = self._news
            try:
                await self.unprepare(uid)
            except NotUnprepared as error:
                self._complain(uid, error)
            else:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await news.wait()
            pause = min(pause * 2, longest)

    def _complain(self, uid: str, error: NotUnprepared) -> None:
        log.warning("claims not unprepared yet", extra={"uid": uid, "why": str(error)})
        for record in self._ledger.of_pod(uid)[:1]:
            for user in record.users:
                if user.uid == uid:
                    self._listeners.trouble(record.namespace, user, error)

    def annotations(self, pod: Pod, given: Mapping[str, str]) -> dict[str, str]:
        """What its sandbox is told beside what it is `given` anyway."""
        drivers = {name for each in self._ledger.of_pod(pod.uid) for name in each.drivers}
        return required_plugins.requiring(given, required_plugins.plugins(drivers))

    def statuses(self, pod: Pod) -> dict[str, list[dict[str, object]]]:
        """By container, how the devices are that it has, as its status shows that."""
        records = self._records(pod)
        found = {
            each.name: status.statuses(pod_claims.device_requests(pod, each), records, self.drivers.health)
            for each in (*pod.spec.init_containers, *pod.spec.containers)
            if records and each.resources.claims
        }
        return {name: told for name, told in found.items() if told}

    def dynamic_resources(self, pod: Pod, container: Container) -> list[pb.DynamicResource]:
        """What a container has, as the pod-resources API tells it."""
        records = self._records(pod)
        return status.dynamic_resources(pod_claims.device_requests(pod, container), records) if records else []

    def _moved(self, driver: str) -> None:
        self._slices.moved(driver)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
        self._listeners.waiting()

    def _changed(self, driver: str, devices: set[Key]) -> None:
        for record in self._ledger.records.values():
            if any((each.pool, each.name) in devices for each in record.drivers.get(driver) or ()):
                for user in record.users:
                    self._listeners.pod(user.uid)
