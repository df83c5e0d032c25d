"""The claim manager: has drivers prepare claims before a pod starts and unprepare them after its end."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from podwire.durable.records import Problem
from podwire.kubelet.claims import pod_claims, required_plugins, status
from podwire.kubelet.claims.checkpoint import ClaimCheckpoint
from podwire.kubelet.claims.claim_info import ClaimInfo, ClaimUser
from podwire.kubelet.claims.claim_watches import CLAIMS, ClaimWatches
from podwire.kubelet.claims.device_health import Key
from podwire.kubelet.claims.drivers import Drivers
from podwire.kubelet.claims.errors import WAITING, ClaimsNotReady, NotUnprepared
from podwire.kubelet.claims.pod_claims import PodClaimRef
from podwire.kubelet.claims.preparation import ClaimPreparation, gather
from podwire.kubelet.claims.resource_slices import ResourceSlices
from podwire.kubelet.claims.settings import ClaimSettings
from podwire.kubelet.pods.wakeups import Wakeups
from podwire.kubelet.ports import PluginSockets
from podwire.linux.proc.processes import boot_id
from podwire.objects import claims
from podwire.objects.claims import ResourceClaim
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.client_side.events import WARNING, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.podresources import podresources_pb2 as pb
from podwire.tasks.backoff import Pauses

log = logging.getLogger(__name__)


class ClaimManager:
    """`load` comes first; `loaded` is set when drivers can register."""

    def __init__(
        self,
        api: Client,
        sockets: PluginSockets,
        root: Path,
        node: str,
        settings: ClaimSettings,
        wakeups: Wakeups,
        recorder: Recorder,
        report: Callable[[Problem], None] | None = None,
    ) -> None:
        """`report` is called when a record is damaged, in any thread."""
        self._api = api
        self._settings = settings
        self._wakeups = wakeups
        self._recorder = recorder
        self._checkpoint = ClaimCheckpoint(root / "claims", report)
        self.drivers = Drivers(sockets, settings, self._connection_changed, self._health_changed)
        self._preparation = ClaimPreparation(self._checkpoint, self.drivers, boot_id(), settings.hand_over)
        self._slices = ResourceSlices(api, node, self.drivers.connected, settings)
        self._watches = ClaimWatches(api, wakeups.claim_changed)
        self._drivers_changed = asyncio.Event()
        self._damaged_unused = asyncio.Event()
        self._drivers_had_time = False
        """Whether drivers have had the time to register."""
        self.loaded = asyncio.Event()

    def load(self) -> None:
        """Read the checkpoint. Blocks. Raises NewerFormat, LinuxError."""
        self._checkpoint.load()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.drivers.run(self.loaded), name="DRA drivers")
                group.create_task(self._slices.run(), name="ResourceSlices of drivers that are gone")
                group.create_task(self._watches.run(), name="claims that pods wait for")
                group.create_task(self._reconcile(), name="claims of pods that are gone")
                group.create_task(self._unprepare_damaged(), name="claims whose records are damaged")
        finally:
            await self._preparation.close()

    async def _reconcile(self) -> None:
        await asyncio.sleep(min(self._settings.registration, self._settings.reconcile))
        self._drivers_had_time = True
        while True:
            self._wakeups.orphans_possible()
            await asyncio.sleep(self._settings.reconcile)

    def check_damaged(self, pods: Iterable[Pod]) -> None:
        """`pods` are all pods of this node. When each has its claims, damaged records belong to claims without pods."""
        if self._checkpoint.damaged and all(pod.finished or self._has_all(pod) for pod in pods):
            self._damaged_unused.set()

    def _has_all(self, pod: Pod) -> bool:
        try:
            return self.has(pod)
        except ClaimsNotReady:
            return False

    async def _unprepare_damaged(self) -> None:
        while True:
            await self._damaged_unused.wait()
            self._damaged_unused.clear()
            for uid, claim in tuple(self._checkpoint.damaged.items()):
                if not (self._drivers_had_time or claim.drivers or uid in self._checkpoint.claims):
                    continue  # any driver may have prepared it
                about = {"claim": claim.name, "uid": uid}
                try:
                    await self._preparation.unprepare_damaged(uid, self.drivers.names)
                except NotUnprepared as error:
                    log.warning("cannot unprepare claim with damaged record", extra={**about, "error": str(error)})
                else:
                    log.info("unprepared claim with damaged record", extra=about)

    @property
    def uids(self) -> set[str]:
        """Pods that use claims."""
        return {user.uid for claim in self._checkpoint.claims.values() for user in claim.users}

    async def prepare(self, pod: Pod) -> None:
        """Have drivers prepare all claims of a pod, before anything is made for it. Raises ClaimsNotReady."""
        if not pod_claims.uses_claims(pod):
            return
        versions: dict[str, str] = {}
        try:
            fetched = await self._fetch(pod, pod_claims.claim_refs(pod), versions)
            with self._event_if_slow(pod, fetched):
                await self._preparation.prepare(ClaimUser(uid=pod.uid, name=pod.name), fetched)
        except ClaimsNotReady:
            self._watches.wait(pod.uid, pod.namespace, versions)
            raise
        self._watches.forget(pod.uid)
        if self._checkpoint.damaged:
            self._wakeups.orphans_possible()

    @contextlib.contextmanager
    def _event_if_slow(self, pod: Pod, requested: Sequence[ResourceClaim]) -> Iterator[None]:
        """Record an event when drivers take long: a driver that hangs has `call` seconds until it fails."""
        slow = self._settings.slow
        drivers = ", ".join(sorted({device.driver for claim in requested for device in claim.allocated}))
        names = ", ".join(claim.name for claim in requested)
        message = f"DRA driver {drivers} has not prepared ResourceClaim {names} for {slow:g} s"
        timer = asyncio.get_running_loop().call_later(slow, self._recorder.tell, pod, WARNING, WAITING, message)
        try:
            yield
        finally:
            timer.cancel()

    async def _fetch(self, pod: Pod, refs: Sequence[PodClaimRef], versions: dict[str, str]) -> list[ResourceClaim]:
        """Get the claims from the API server, concurrently, and check that the pod may use them. ClaimsNotReady."""
        fetched = await gather(self._get(pod, ref, versions) for ref in refs)
        for ref, claim in zip(refs, fetched, strict=True):
            pod_claims.check(pod, ref, claim)
            for driver in sorted({device.driver for device in claim.allocated}):
                if driver not in self.drivers:
                    raise ClaimsNotReady(f"DRA driver {driver} is not registered")
        return fetched

    async def _get(self, pod: Pod, ref: PodClaimRef, versions: dict[str, str]) -> ResourceClaim:
        versions[ref.name] = ""
        try:
            claim = claims.read(await self._api.get(CLAIMS, ref.name, pod.namespace))
        except (ApiError, ClientError, msgspec.ValidationError) as error:
            raise ClaimsNotReady(f"fetch ResourceClaim {ref.name}: {error}") from error
        versions[ref.name] = pod_claims.version(claim)
        return claim

    async def devices(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """CDI devices of a container, right before it is created. Raises ClaimsNotReady.

        No container of a pod starts unless all claims of the pod are prepared, whichever the container uses.
        """
        if not pod_claims.uses_claims(pod):
            return ()
        if not self.has(pod):
            await self.prepare(pod)
        return pod_claims.cdi_devices(pod_claims.device_requests(pod, container), self._by_name(pod))

    def has(self, pod: Pod) -> bool:
        """Whether all claims of the pod are prepared for it. Raises ClaimsNotReady if their names are not known yet."""
        if not pod_claims.uses_claims(pod):
            return True
        prepared = {claim.name for claim in self._checkpoint.of_pod(pod.uid) if claim.prepared}
        return all(ref.name in prepared for ref in pod_claims.claim_refs(pod))

    def _by_name(self, pod: Pod) -> dict[str, ClaimInfo]:
        return {claim.name: claim for claim in self._checkpoint.of_pod(pod.uid)}

    async def unprepare(self, uid: str) -> None:
        """Have drivers unprepare claims that no other pod uses; nothing of this pod runs any more. NotUnprepared."""
        self._watches.forget(uid)
        if await self._preparation.unprepare(uid):
            self._notify_waiting()

    async def release(self, uid: str) -> None:
        """Unprepare until it succeeds: at once when a driver registers or connects, else with back-off."""
        pauses = Pauses(*self._settings.unprepare_backoff)
        while True:
            changed = self._drivers_changed
            try:
                await self.unprepare(uid)
            except NotUnprepared as error:
                log.warning("cannot unprepare claims of pod", extra={"uid": uid, "error": str(error)})
                self._record_not_unprepared(uid, error)
            else:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pauses.next()):
                    await changed.wait()

    def _record_not_unprepared(self, uid: str, error: NotUnprepared) -> None:
        """The pod may be gone from the API: its name is taken from the checkpoint."""
        for claim in self._checkpoint.of_pod(uid)[:1]:
            for user in claim.users:
                if user.uid == uid:
                    pod = Reference(kind="Pod", namespace=claim.namespace, name=user.name, uid=user.uid)
                    self._recorder.tell(pod, WARNING, error.reason, error.event_message)

    def annotations(self, pod: Pod, given: Mapping[str, str]) -> dict[str, str]:
        """Annotations of the pod's sandbox that change or are added to the `given` ones."""
        drivers = {name for claim in self._checkpoint.of_pod(pod.uid) for name in claim.drivers}
        return required_plugins.requiring(given, required_plugins.plugins(drivers))

    def statuses(self, pod: Pod) -> dict[str, list[dict[str, object]]]:
        """By container: the health of its claimed devices as the pod's status shows it."""
        by_name = self._by_name(pod)
        if not by_name:
            return {}
        statuses = {
            container.name: status.statuses(pod_claims.device_requests(pod, container), by_name, self.drivers.health)
            for container in (*pod.spec.init_containers, *pod.spec.containers)
            if container.resources.claims
        }
        return {name: entries for name, entries in statuses.items() if entries}

    def dynamic_resources(self, pod: Pod, container: Container) -> list[pb.DynamicResource]:
        """Claimed devices of a container as the pod-resources API shows them."""
        by_name = self._by_name(pod)
        return status.dynamic_resources(pod_claims.device_requests(pod, container), by_name) if by_name else []

    def _connection_changed(self, driver: str) -> None:
        self._slices.connection_changed(driver)
        self._notify_waiting()

    def _notify_waiting(self) -> None:
        self._drivers_changed.set()
        self._drivers_changed = asyncio.Event()
        self._wakeups.claims_changed()

    def _health_changed(self, driver: str, devices: set[Key]) -> None:
        for claim in self._checkpoint.claims.values():
            if any((device.pool, device.name) in devices for device in claim.drivers.get(driver) or ()):
                for user in claim.users:
                    self._wakeups.claim_changed(user.uid)
