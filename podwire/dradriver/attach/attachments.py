"""Devices of claims: prepared on the host, attached to pods, given back as they were.

Calls for one pod come one at a time; so do those for one claim.
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from podwire.dradriver.addresses.keys import Key, key_of
from podwire.dradriver.attach import made_links, preparation
from podwire.dradriver.attach.executor import Hands, LinkGone, StepFailed
from podwire.dradriver.attach.link_match import found
from podwire.dradriver.attach.netns import Place
from podwire.dradriver.attach.plan import addresses as addresses_of
from podwire.dradriver.attach.plan import change, inverse, plan
from podwire.dradriver.attach.records import ATTACHED, ATTACHING, OWN_NAME, PREPARED, TAG, Record, Records, Terms
from podwire.dradriver.claims.allocations import ClaimRef, Order, PodRef, Refused
from podwire.dradriver.parameters.settings import Interface
from podwire.failpoints import declare, failpoint
from podwire.linux import errors
from podwire.linux.net.addresses import KernelAddresses
from podwire.linux.net.link_attributes import DetailedLinks
from podwire.linux.net.links import KernelLinks

_log = logging.getLogger("podwire.dradriver")

RECORDED = declare("network-driver.recorded", "what was promised is written, and nothing is done about it")
BEGUN = declare("network-driver.begun", "it is on record that a pod's devices are on their way, and none has begun")
COMPLETE = declare("network-driver.complete", "all devices of a pod are in it, and nobody can know by the file")
NOTED = declare("network-driver.noted", "a pod's devices are attached, and the file says so")
UNTOLD = declare("network-driver.untold", "the file of a pod's devices is gone, and they are all still there")
BACK = declare("network-driver.back", "a device is as it was, and its record does not say so")

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """One device in its pod."""

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
    """Why it has not what a lease would give it; empty while it has."""


class AttachFailed(Exception):
    """A pod's devices are on the host, as they were: one of them could not be attached."""

    def __init__(self, record: Record, error: StepFailed) -> None:
        super().__init__(f"device {record.order.offered.device}: {error}")
        self.claim, self.device, self.step = record.order.claim, record.order.offered.device, error.step.name
        self.why = error.why


class NotGivenBack(Exception):
    """Some devices are not what they were; it can be tried again."""


class Attachments:
    def __init__(self, state: Path, *, boot: str = "") -> None:
        """In the calling thread's network namespace, the host's. `boot` is the machine's if it is not given."""
        self._records = Records(state)
        self._boot = boot or _BOOT.read_text(encoding="ascii").strip()
        self._records.begin(self._boot)
        self._host = Place()
        self._host.ethtool  # noqa: B018 - opened now, before threads share it
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
        """There, with the namespace in it, while all devices of a pod are attached."""
        return self._records.attached_file(pod_uid)

    def prepare(
        self, orders: Sequence[Order], addresses: Mapping[Key, tuple[Interface, ...]] | None = None
    ) -> tuple[Record, ...]:
        """Make ready all or none; what is prepared stays as it is. Before anybody hears of it, it is to be settled.

        Raises Refused, LinuxError.
        """
        given, done = addresses or {}, list[Record]()
        with self._lock, ExitStack() as undo:
            taken = self._records.all()
            for order in orders:
                record = next((each for each in taken if _is_for(each, order) and each.boot == self._boot), None)
                if record is None:
                    preparation.check_free(order, taken)
                    record = preparation.decided(self._host, order, given.get(key_of(order)), self._boot)
                    self._records.promise(record, durably=False)
                    undo.callback(self._forget, record)
                    failpoint(RECORDED)
                if record.stage == PREPARED:
                    preparation.ready(self._host, record)
                done.append(record)
            undo.pop_all()
        return tuple(done)

    def settle(self, claim_uid: str) -> None:
        """What is prepared for a claim outlives a loss of power from now on. Raises LinuxError."""
        self._records.settle(claim_uid)

    def _forget(self, record: Record) -> None:
        self._undo(record, None)
        self._records.remove(record)

    def follow(self, key: Key, terms: Terms) -> bool:
        """The interface as its lease is now, in its pod or before it gets there. False when it was so already.

        What is told of it is true also when it cannot be done. It is on record afterwards: who is killed meanwhile is
        followed by one who does it again, for all of it can be done twice.
        """
        before = next((each for each in self._records.of_claim(key.claim.uid) if each.key == key), None)
        if before is None or before == (after := before.under(terms)):
            return False
        try:
            if before.stage == ATTACHED:
                self._follow(before, after)
        except (StepFailed, errors.LinuxError) as error:
            after = replace(before, lapse=f"what is leased now cannot be had: {error}")
        self._records.promise(after)
        return True

    def _follow(self, before: Record, after: Record) -> None:
        """Raises StepFailed, LinuxError."""
        with ExitStack() as stack:
            pod = self._open(before, None, stack)
            hands = Hands(before, self._host, pod)
            hands.look()
            if pod is not None and hands.here is pod:
                there = [each.interface for each in KernelAddresses(pod.netlink).list(hands.ifindex)]
                hands.do(change(before, after, there))

    def attach(self, pod_uid: str, netns: str) -> tuple[Attached, ...]:
        """All devices of a pod, or none. Raises AttachFailed, NotGivenBack, Refused; NoSuchNamespace."""
        records = tuple(self._of_this_boot(each) for each in self._records.of_pod(pod_uid))
        with Place(netns) as pod:
            if not self._all_there(records, pod):
                self._records.clear_attached(pod_uid)
                # Whoever was killed half-way, or went to a namespace that the pod has no more, begins anew.
                records = self._back(records, netns)
                _check_leased(records)
                records = self._attach(records, pod, netns)
                failpoint(COMPLETE)
            if records and self._records.attached(pod_uid) != pod.identity:
                self._records.set_attached(pod_uid, pod.identity)
                failpoint(NOTED)
            return tuple(_told(each) for each in records)

    def _of_this_boot(self, record: Record) -> Record:
        """What the host was like before a boot is of no use after it."""
        if record.boot == self._boot:
            return record
        anew = preparation.decided(self._host, record.order, record.addresses, self._boot)
        self._records.promise(anew)
        preparation.ready(self._host, anew)
        return anew

    def _attach(self, records: tuple[Record, ...], pod: Place, netns: str) -> tuple[Record, ...]:
        begun = [each.at(stage=ATTACHING, netns=netns, identity=pod.identity, failure="") for each in records]
        for each in begun:
            self._records.note(each)
        failpoint(BEGUN)
        done: list[Record] = []
        for each in begun:
            try:
                done.append(self._attach_one(each, pod))
            except StepFailed as error:
                self._give_up(begun, pod, each, error)
                raise AttachFailed(each, error) from error
        for each in done:
            self._records.note(each)
        return tuple(done)

    def _attach_one(self, record: Record, pod: Place) -> Record:
        """Raises StepFailed."""
        hands = Hands(record, self._host, pod)
        on_host = hands.look_on_host()
        wanted = plan(record, waits_on_host=on_host is not None)
        try:
            if record.snapshot is not None:
                preparation.check_free_to_go(self._host, on_host, record)
        except (Refused, errors.LinuxError) as error:
            raise StepFailed(wanted[0], error) from error
        hands.do(wanted)
        return record.at(stage=ATTACHED, ifindex=hands.ifindex, lost=tuple(hands.lost))

    def _give_up(self, begun: Iterable[Record], pod: Place, failed: Record, error: StepFailed) -> None:
        for each in reversed(tuple(begun)):
            told = each.at(failure=str(error)) if each is failed else each
            try:
                self._given_back(told, self._undo(each, pod))
            except StepFailed as trouble:
                self._records.note(told.at(failure=f"{told.failure or error}; then {trouble}"))
                _log.error(
                    "a device is not what it was", extra={"device": each.order.offered.device, "why": str(trouble)}
                )

    def _all_there(self, records: Iterable[Record], pod: Place) -> bool:
        if any(each.stage != ATTACHED or each.progress.identity != pod.identity for each in records):
            return False
        links = DetailedLinks(pod.netlink).list()
        return all(found(each, links) is not None for each in records)

    def _undo(self, record: Record, pod: Place | None, *, final: bool = False) -> tuple[str, ...]:
        """Returns what is lost. With `final`, that includes hardware that may still come back. Raises StepFailed."""
        hands = Hands(record, self._host, pod)
        hands.look()
        try:
            hands.do(inverse(record, plan(record, waits_on_host=record.order.settings.dhcp)))
        except StepFailed as error:
            virtual = record.snapshot is not None and record.snapshot.kind
            if not isinstance(error.why, LinkGone) or not (virtual or final):
                raise
            return (f"{record.order.offered.link}: the link is gone, with the pod's namespace",)
        return tuple(hands.lost)

    def _given_back(self, record: Record, lost: tuple[str, ...]) -> Record:
        failpoint(BACK)
        back = record.at(stage=PREPARED, netns="", identity="", ifindex=0, lost=(*record.lost, *lost))
        self._records.note(back)
        return back

    def detach(self, pod_uid: str, netns: str | None = None) -> tuple[Record, ...]:
        """Everything as it was before it was prepared; what could not be is in `lost`. Raises NotGivenBack."""
        self._records.clear_attached(pod_uid)
        failpoint(UNTOLD)
        return self._back(self._records.of_pod(pod_uid), netns)

    def _back(self, records: Sequence[Record], netns: str | None, *, final: bool = False) -> tuple[Record, ...]:
        """Goes on after a failure, and then tells all."""
        done, failed = [], []
        for record in reversed(records):
            try:
                done.append(record if record.stage == PREPARED else self._back_one(record, netns, final))
            except StepFailed as error:
                failed.append(f"device {record.order.offered.device}: {error}")
                self._records.note(record.at(failure=str(error)))
        if failed:
            raise NotGivenBack("; ".join(failed))
        return tuple(reversed(done))

    def _back_one(self, record: Record, netns: str | None, final: bool) -> Record:
        if record.boot != self._boot:  # the boot took care of it, and what the host was like before is of no use now
            return self._given_back(record, ())
        with ExitStack() as stack:
            return self._given_back(record, self._undo(record, self._open(record, netns, stack), final=final))

    def _open(self, record: Record, netns: str | None, stack: ExitStack) -> Place | None:
        """The namespace that a device is in; None when it is no more."""
        for path in filter(None, (netns, record.netns)):
            try:
                place = Place(path)
            except (errors.NoSuchNamespace, errors.WrongKind):
                continue
            stack.callback(place.close)
            if place.identity == record.progress.identity:
                return place
        return None

    def unprepare(self, claim_uid: str) -> tuple[Record, ...]:
        """Nothing is left of a claim; it may be unknown. Raises NotGivenBack."""
        records = self._records.of_claim(claim_uid)
        for pod_uid in {each.order.pod.uid for each in records if each.stage != PREPARED}:
            self._records.clear_attached(pod_uid)
        back = self._back(records, None, final=True)
        for each in back:
            if each.order.settings.dhcp:  # its link waits on the host, or is up there for the sake of it
                self._undo(each, None)
            self._records.remove(each)
        return back

    def attached(self, pod_uid: str) -> tuple[Attached, ...]:
        """Those of a pod that are in it."""
        return tuple(_told(each) for each in self._records.of_pod(pod_uid) if each.stage == ATTACHED)

    def is_attached(self, pod_uid: str, netns: str) -> bool:
        """Whether all devices of a pod are in this namespace."""
        try:
            with Place(netns) as pod:
                return self._records.attached(pod_uid) == pod.identity
        except (errors.NoSuchNamespace, errors.WrongKind):
            return False

    def reconcile(self, live: Mapping[str, str]) -> tuple[Record, ...]:
        """What was missed: `live` are the pods that run, with their namespaces. Returns the records that changed.

        A pod that is gone gets its devices taken away; one that is there and has not all of them gets them.
        """
        changed: list[Record] = []
        self._sweep()
        for pod_uid in {each.order.pod.uid for each in self._records.all()} | set(self._records.pods_attached()):
            changed += self._reconcile(pod_uid, live.get(pod_uid))
        return tuple(changed)

    def _sweep(self) -> None:
        """Delete interfaces that were made for claims of which there is no record any more."""
        links = KernelLinks(self._host.netlink).list()
        tags = {each.tag for each in self._records.all()}  # read after the links: a record is there before its link
        for each in links:
            if OWN_NAME.fullmatch(each.name) and each.alias.startswith(TAG) and each.alias not in tags:
                made_links.delete_marked(self._host, each.name, each.alias)

    def _reconcile(self, pod_uid: str, netns: str | None) -> list[Record]:
        before = self._records.of_pod(pod_uid)
        if netns is not None and before:
            try:
                self.attach(pod_uid, netns)
            except (AttachFailed, NotGivenBack, Refused, errors.LinuxError) as error:
                _log.error("a pod that runs has not its devices", extra={"pod": pod_uid, "why": str(error)})
        else:
            try:
                self.detach(pod_uid)
            except NotGivenBack as error:
                _log.error("a device is not what it was", extra={"pod": pod_uid, "why": str(error)})
        return [each for each in self._records.of_pod(pod_uid) if each not in before]


def _is_for(record: Record, order: Order) -> bool:
    return key_of(record.order) == key_of(order) and record.order.pod.uid == order.pod.uid


def _check_leased(records: Iterable[Record]) -> None:
    """No pod starts with an address that may be another's by now. Raises Refused."""
    for each in records:
        if each.lapse and not each.addresses:
            raise Refused("interface.dhcp", f"device {each.order.offered.device}: {each.lapse}")


def _told(record: Record) -> Attached:
    order = record.order
    carried, given = addresses_of(record)
    return Attached(
        claim=order.claim,
        pod=order.pod,
        request=order.request,
        device=order.offered.device,
        pool=order.pool,
        share_id=order.share_id,
        interface=order.settings.name,
        ifindex=record.ifindex,
        mac=record.mac,
        mtu=order.settings.mtu or record.mtu or order.offered.mtu,
        ips=(*given, *(each.interface for each in carried)),
        lapse=record.lapse,
    )
