"""Prepares claimed devices on the host, attaches them to pods, and restores them.

The caller serializes the calls for one pod, and those for one claim. Each method can be repeated after a crash: it
reads from the records and the links' owner tags how far the previous attempt got.
"""

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from podwire.dradriver.addresses.keys import Key, key_of
from podwire.dradriver.attach import preparation
from podwire.dradriver.attach.executor import LinkGone, StepExecutor, StepFailed
from podwire.dradriver.attach.link_match import find_link
from podwire.dradriver.attach.orphans import OrphanedLinks
from podwire.dradriver.attach.plan import addresses as addresses_of
from podwire.dradriver.attach.plan import change, inverse, plan
from podwire.dradriver.attach.ports import BridgePorts
from podwire.dradriver.attach.records import ATTACHED, ATTACHING, PREPARED, DeviceRecords, Record, Terms
from podwire.dradriver.claims.allocations import Allocation, ClaimRef, PodRef, Refused
from podwire.dradriver.parameters.settings import Interface
from podwire.durable.files import Durability
from podwire.failpoints import declare, failpoint
from podwire.linux import errors
from podwire.linux.net.addresses import KernelAddresses
from podwire.linux.net.link_attributes import DetailedLinks
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.proc.processes import boot_id

_log = logging.getLogger("podwire.dradriver")

RECORDED = declare("network-driver.recorded", "a record is written, and nothing is done for it")
BEGUN = declare("network-driver.begun", "records say that a pod's devices are being attached, and no link has moved")
COMPLETE = declare("network-driver.complete", "all devices of a pod are in it, and the attached file does not exist")
NOTED = declare("network-driver.noted", "a pod's devices are attached, and the attached file says so")
UNTOLD = declare("network-driver.untold", "a pod's attached file is removed, and its devices are still in it")
BACK = declare("network-driver.back", "a device is restored, and its record does not say so")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A device in its pod."""

    claim: ClaimRef
    pod: PodRef
    request: str
    device: str
    pool: str
    share_id: str
    interface: str
    ifindex: int
    mac: str
    mtu: int
    ips: tuple[Interface, ...]
    lapse: str
    """Why it does not have what its lease grants; empty while it has."""


class AttachFailed(Exception):
    """One device of a pod could not be attached; all of them are restored on the host."""

    def __init__(self, record: Record, error: StepFailed) -> None:
        super().__init__(f"device {record.allocation.device.name}: {error}")
        self.claim, self.device, self.step = record.allocation.claim, record.allocation.device.name, error.step.name
        self.error = error.error


class RestoreFailed(Exception):
    """Some devices are not restored; a retry may succeed."""


class Attachments:
    def __init__(self, state: Path, *, boot: str = "", trusted_bridges: Collection[str] = ()) -> None:
        """Works in the calling thread's network namespace, the host's. `boot` is the machine's if it is not given."""
        self._ports = BridgePorts(trusted_bridges)
        self._records = DeviceRecords(state)
        self.boot = boot or boot_id()
        """Records of another boot have snapshots that mean nothing now."""
        self._records.begin(self.boot)
        self._host = NamespaceHandle()
        self._host.ethtool  # noqa: B018 - opened now, before threads share it
        self.orphans = OrphanedLinks(self._host, self._records, state / "listed")
        self._lock = threading.Lock()

    def close(self) -> None:
        self._host.close()

    def records(self) -> tuple[Record, ...]:
        return self._records.all()

    def of_pod(self, pod_uid: str) -> tuple[Record, ...]:
        return self._records.of_pod(pod_uid)

    def of_claim(self, claim_uid: str) -> tuple[Record, ...]:
        return self._records.of_claim(claim_uid)

    def attached_file(self, pod_uid: str) -> Path:
        """The file that exists while all devices of a pod are attached, with the identity of its namespace."""
        return self._records.attached_file(pod_uid)

    def prepare(
        self, allocations: Sequence[Allocation], addresses: Mapping[Key, tuple[Interface, ...]] | None = None
    ) -> tuple[Record, ...]:
        """Prepares all devices or none; what is prepared stays as it is. `fsync_claim` comes before the answer.

        Raises Refused, LinuxError, NewerFormat.
        """
        given, done = addresses or {}, list[Record]()
        with self._lock, ExitStack() as undo:
            taken = self._records.all()
            for allocation in allocations:
                key, pod = key_of(allocation), allocation.pod.uid
                present = (candidate for candidate in taken if (candidate.key, candidate.boot) == (key, self.boot))
                record = next((candidate for candidate in present if candidate.allocation.pod.uid == pod), None)
                if record is None:
                    preparation.check_free(allocation, taken)
                    record = preparation.decide(self._host, allocation, given.get(key), self.boot)
                    # `fsync_claim` makes it survive a power loss, before the kubelet is answered.
                    self._records.put(record.file_key, record, Durability.PROCESS_DEATH)
                    undo.callback(self._forget, record)
                    failpoint(RECORDED)
                if record.stage == PREPARED:
                    preparation.make_ready(self._host, record, self._ports)
                done.append(record)
            undo.pop_all()
        return tuple(done)

    def fsync_claim(self, claim_uid: str) -> None:
        """Makes the records of a claim survive a power loss. Raises LinuxError."""
        self._records.fsync_claim(claim_uid)

    def _forget(self, record: Record) -> None:
        """The record stays if its link cannot be restored."""
        self._undo(record, None)
        self._records.remove(record.file_key)

    def apply_terms(self, key: Key, terms: Terms) -> bool:
        """Applies a lease to the interface, in its pod or before it gets there. Returns False if nothing changed.

        The record is written after the kernel was changed: all of it can be repeated after a crash. If the kernel
        rejects the terms, the record keeps the old ones and says why.
        """
        before = next((record for record in self._records.of_claim(key.claim.uid) if record.key == key), None)
        if before is None or before == (after := before.under(terms)):
            return False
        try:
            if before.stage == ATTACHED:
                with ExitStack() as stack:
                    pod = self._open(before, None, stack)
                    executor = StepExecutor(before, self._host, pod, self._ports)
                    executor.locate()
                    if pod is not None and executor.here is pod:
                        present = [address.interface for address in KernelAddresses(pod.netlink).list(executor.ifindex)]
                        executor.run(change(before, after, present))
        except (StepFailed, errors.LinuxError) as error:
            after = structs.replace(before, lapse=f"the lease cannot be applied: {error}")
        self._records.put(after.file_key, after)
        return True

    def attach(self, pod_uid: str, netns: str) -> tuple[Attached, ...]:
        """Attaches all devices of a pod, or none. Raises AttachFailed, RestoreFailed, Refused, NoSuchNamespace."""
        return self._attach_pod(pod_uid, netns)

    def _attach_pod(self, pod_uid: str, netns: str) -> tuple[Attached, ...]:
        records = tuple(self._of_this_boot(record) for record in self._records.of_pod(pod_uid))
        with NamespaceHandle(netns) as pod:
            if not self._all_there(records, pod):
                self._records.clear_attached(pod_uid)
                # An interrupted attach, or one to a namespace that the pod no longer has, starts again from the host.
                records = self._restore_all(records, netns)
                for record in records:
                    if record.lapse and not record.addresses:  # it may be another's address by now
                        raise Refused("interface.dhcp", f"device {record.allocation.device.name}: {record.lapse}")
                records = self._attach(records, pod, netns)
                failpoint(COMPLETE)
            if records and self._records.attached(pod_uid) != pod.identity:
                self._records.set_attached(pod_uid, pod.identity)
                failpoint(NOTED)
            return tuple(_attached(record) for record in records)

    def _of_this_boot(self, record: Record) -> Record:
        """Replaces a record of another boot: its snapshot means nothing now."""
        if record.boot == self.boot:
            return record
        fresh = preparation.decide(self._host, record.allocation, record.addresses, self.boot)
        self._records.put(fresh.file_key, fresh)
        preparation.make_ready(self._host, fresh, self._ports)
        return fresh

    def _attach(self, records: tuple[Record, ...], pod: NamespaceHandle, netns: str) -> tuple[Record, ...]:
        begun = [record.at(stage=ATTACHING, netns=netns, identity=pod.identity, failure="") for record in records]
        for record in begun:
            self._records.advance(record)
        failpoint(BEGUN)
        done: list[Record] = []
        for record in begun:
            try:
                done.append(self._attach_one(record, pod))
            except StepFailed as error:
                self._undo_attach(begun, pod, record, error)
                raise AttachFailed(record, error) from error
        for record in done:
            self._records.advance(record)
        return tuple(done)

    def _attach_one(self, record: Record, pod: NamespaceHandle) -> Record:
        """Raises StepFailed."""
        executor = StepExecutor(record, self._host, pod, self._ports)
        on_host = executor.locate_on_host()
        steps = plan(record, waits_on_host=on_host is not None)
        try:
            if record.snapshot is not None:
                preparation.check_still_free(self._host, on_host, record)
        except (Refused, errors.LinuxError) as error:
            raise StepFailed(steps[0], error) from error
        executor.run(steps)
        return record.at(stage=ATTACHED, ifindex=executor.ifindex, lost=tuple(executor.lost))

    def _undo_attach(self, begun: Iterable[Record], pod: NamespaceHandle, failed: Record, error: StepFailed) -> None:
        for record in reversed(tuple(begun)):
            noted = record.at(failure=str(error)) if record is failed else record
            try:
                self._record_restored(noted, self._undo(record, pod))
            except StepFailed as second:
                self._note(noted.at(failure=f"{noted.failure or error}; then {second}"))
                _log.error(
                    "cannot restore device after failed attach",
                    extra={"device": record.allocation.device.name, "error": str(second)},
                )

    def _all_there(self, records: Iterable[Record], pod: NamespaceHandle) -> bool:
        if any(record.stage != ATTACHED or record.progress.identity != pod.identity for record in records):
            return False
        links = DetailedLinks(pod.netlink).list()
        return all(find_link(record, links) is not None for record in records)

    def _undo(self, record: Record, pod: NamespaceHandle | None, *, final: bool = False) -> tuple[str, ...]:
        """Returns what could not be restored. With `final`, also hardware that may still return. Raises StepFailed."""
        executor = StepExecutor(record, self._host, pod, self._ports)
        executor.locate()
        try:
            executor.run(inverse(record, plan(record, waits_on_host=record.allocation.settings.dhcp)))
        except StepFailed as error:
            virtual = record.snapshot is not None and record.snapshot.kind
            if not isinstance(error.error, LinkGone) or not (virtual or final):
                raise
            return (f"{record.allocation.device.link}: the link is gone, with the pod's namespace",)
        return tuple(executor.lost)

    def _record_restored(self, record: Record, lost: tuple[str, ...]) -> Record:
        failpoint(BACK)
        restored = record.at(stage=PREPARED, netns="", identity="", ifindex=0, lost=(*record.lost, *lost))
        self._note(restored)
        return restored

    def _note(self, record: Record) -> None:
        """Writes progress on the way back. A full disk does not keep a pod from ending: what the record does not say is
        read from the kernel again, because every step can be repeated."""
        try:
            self._records.advance(record)
        except errors.OutOfResources as error:
            _log.warning("cannot write progress of restored device", extra={"error": str(error)})

    def detach(self, pod_uid: str, netns: str | None = None) -> tuple[Record, ...]:
        """Restores the pod's devices on the host; `lost` of a record says what could not be. Raises RestoreFailed."""
        return self._detach_pod(pod_uid, netns)

    def _detach_pod(self, pod_uid: str, netns: str | None) -> tuple[Record, ...]:
        self._records.clear_attached(pod_uid)
        failpoint(UNTOLD)
        return self._restore_all(self._records.of_pod(pod_uid), netns)

    def _restore_all(self, records: Sequence[Record], netns: str | None, *, final: bool = False) -> tuple[Record, ...]:
        """Goes on after a failure; the error names all failures."""
        done, failed = [], []
        for record in reversed(records):
            try:
                done.append(record if record.stage == PREPARED else self._restore_one(record, netns, final))
            except StepFailed as error:
                failed.append(f"device {record.allocation.device.name}: {error}")
                self._note(record.at(failure=str(error)))
        if failed:
            raise RestoreFailed("; ".join(failed))
        return tuple(reversed(done))

    def _restore_one(self, record: Record, netns: str | None, final: bool) -> Record:
        if record.boot != self.boot:  # the boot reset the link, and the snapshot means nothing now
            return self._record_restored(record, ())
        with ExitStack() as stack:
            return self._record_restored(record, self._undo(record, self._open(record, netns, stack), final=final))

    def _open(self, record: Record, netns: str | None, stack: ExitStack) -> NamespaceHandle | None:
        """Opens the namespace that a device is in; None when it is gone."""
        for path in filter(None, (netns, record.netns)):
            try:
                place = NamespaceHandle(path)
            except (errors.NoSuchNamespace, errors.WrongKind):
                continue
            stack.callback(place.close)
            if place.identity == record.progress.identity:
                return place
        return None

    def unprepare(self, claim_uid: str) -> tuple[Record, ...]:
        """Restores the devices of a claim and removes its records; an unknown claim is fine. Raises RestoreFailed."""
        records = self._records.of_claim(claim_uid)
        for pod_uid in {record.allocation.pod.uid for record in records if record.stage != PREPARED}:
            self._records.clear_attached(pod_uid)
        restored = self._restore_all(records, None, final=True)
        for record in restored:
            if record.allocation.settings.dhcp:  # its link waits on the host, or is up there for DHCP
                self._undo(record, None)
            self._records.remove(record.file_key)
        return restored

    def attached(self, pod_uid: str) -> tuple[Attached, ...]:
        """Returns the devices that are in the pod."""
        return tuple(_attached(record) for record in self._records.of_pod(pod_uid) if record.stage == ATTACHED)

    def is_attached(self, pod_uid: str, netns: str) -> bool:
        """Whether all devices of a pod are in this namespace."""
        try:
            with NamespaceHandle(netns) as pod:
                return self._records.attached(pod_uid) == pod.identity
        except (errors.NoSuchNamespace, errors.WrongKind):
            return False

    def reconcile(self, live: Mapping[str, str]) -> tuple[Record, ...]:
        """Catches up with missed hooks. `live` are the running pods, with their namespaces. Returns changed records.

        Restores the devices of pods that are gone; attaches those of running pods that do not have all of them.
        """
        changed: list[Record] = []
        for pod_uid in {record.allocation.pod.uid for record in self._records.all()} | set(
            self._records.pods_attached()
        ):
            changed += self._reconcile(pod_uid, live.get(pod_uid))
        return tuple(changed)

    def _reconcile(self, pod_uid: str, netns: str | None) -> list[Record]:
        before = self._records.of_pod(pod_uid)
        if netns is not None and before:
            try:
                self._attach_pod(pod_uid, netns)
            except (AttachFailed, RestoreFailed, Refused, errors.LinuxError) as error:
                _log.error("cannot attach devices after missed hooks", extra={"pod": pod_uid, "error": str(error)})
        elif netns is None or not self.orphans.in_pod(netns):  # a pod whose records are lost goes on with what it has
            try:
                self._detach_pod(pod_uid, None)
            except RestoreFailed as error:
                _log.error("cannot restore devices after missed hooks", extra={"pod": pod_uid, "error": str(error)})
        return [record for record in self._records.of_pod(pod_uid) if record not in before]


def _attached(record: Record) -> Attached:
    allocation = record.allocation
    carried, given = addresses_of(record)
    return Attached(
        claim=allocation.claim,
        pod=allocation.pod,
        request=allocation.request,
        device=allocation.device.name,
        pool=allocation.pool,
        share_id=allocation.share_id,
        interface=allocation.settings.name,
        ifindex=record.ifindex,
        mac=record.mac,
        mtu=allocation.settings.mtu or record.mtu or allocation.device.mtu,
        ips=(*given, *(address.interface for address in carried)),
        lapse=record.lapse,
    )
