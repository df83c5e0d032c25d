"""The order of ADD, DEL, CHECK, GC and STATUS, once for all plugins that have records.

A plugin supplies its steps as methods of a subclass of `OrderedPlugin`. Two kinds of plugins share the order: those
that make the pod's link and call an IPAM plugin (bridge, ptp, macvlan, host-device), and those that are chained behind
one (portmap, firewall, bandwidth, tuning). Steps marked with * are of the first kind only.

ADD, with the state that a process killed after the step leaves behind:

| step | action | after a crash |
|---|---|---|
| 1 | validate the configuration, the namespace, the IPAM plugin* | nothing was done |
| 2 | lock the attachment; reuse* or release an earlier record, or what the owner tags name* | nothing, or as in DEL |
| 3 | `prepare`: complete the record; changes nothing | nothing was done |
| 4 | write the record | a record that names nothing that exists: DEL and GC remove it |
| 4a | `connect`*, only for an IPAM plugin that asks over the pod's link (dhcp) | a link, tagged as in step 6 |
| 5 | IPAM ADD* | leased addresses: the record's configuration and ids release them |
| 6 | `attach` | links and nft elements tagged with the record's token: `detach` finds them by it |
| 7 | write the result into the record* | a complete attachment; the next ADD returns the same result |

An error in steps 5 to 7 releases the record before the error is returned.

DEL of an attachment that the reference plugins made finds that by their names (`detach_reference`), between steps 2
and 3; so a node can be taken over from them while pods run.

DEL needs the record alone, neither the namespace nor `prevResult` nor the configuration. Without a record that can be
read it needs the ids alone, with which it finds the owner tags (`attachments.lost_record`):

| step | action | after a crash |
|---|---|---|
| 1 | lock the attachment, read the record | nothing was done |
| 2 | `detach`: nft elements, links | the next DEL finds the rest by the owner tags |
| 3 | IPAM DEL*, also if step 2 failed; last, so that nobody gets the address while it is still routed to the pod | |
|   | (before step 2 for an IPAM plugin that needs the pod's link) | |
| 4 | remove the record, only if steps 2 and 3 succeeded; note the time | the next DEL has nothing to do |

An ADD that was started before that time and gets the lock after it is refused: it hung, and no DEL would follow it.

**Lease ownership.** A lease belongs to the pair of container id and interface name, not to the record. It is taken
after the record is written and released before the record is removed, so a lease without a record is in nobody's hands.
GC relies on that: it lists the leases first and the records second, and keeps each lease that has a record.
"""

from contextlib import ExitStack
from functools import cached_property, partial
from types import TracebackType
from typing import NamedTuple, Self

from podwire.cniplugins import ipam_delegate
from podwire.cniplugins.attachments import Attachments, Damaged, Record, lost_record, new_record, status_errors
from podwire.cniplugins.garbage_collection import collect, delete_orphan
from podwire.cniplugins.pod_check import check_pod
from podwire.cniplugins.pod_link import check_name
from podwire.cniplugins.skeleton import Call, Plugin, changed_config, pod_namespace, require_previous, run_all
from podwire.failpoints import declare, failpoint
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.values import Link
from podwire.protocols.cni import results
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.versions import LATEST


class Failpoints(NamedTuple):
    recorded: str
    leased: str
    attached: str
    added: str
    detached: str
    released: str


def declare_steps(plugin: str) -> Failpoints:
    steps = {
        "recorded": "the record of an attachment is written, nothing is done yet",
        "leased": "the pod's addresses are leased, if the plugin has an IPAM plugin; nothing else is done",
        "attached": "everything is done, the record does not have the result",
        "added": "the record is complete, the runtime has no answer",
        "detached": "DEL: links and nft elements are removed, addresses are still leased",
        "released": "DEL: everything is released, the record still exists",
    }
    return Failpoints(**{step: declare(f"cni.{plugin}-{step}", when) for step, when in steps.items()})


class Ends:
    """The namespaces of the pod and of the host, each opened when it is first used."""

    def __init__(self, netns: str) -> None:
        self._netns = netns
        self._opened = ExitStack()

    @cached_property
    def pod(self) -> NamespaceHandle:
        return self._opened.enter_context(NamespaceHandle(self._netns))

    @cached_property
    def host(self) -> NamespaceHandle:
        return self._opened.enter_context(NamespaceHandle())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._opened.close()


class OrderedPlugin(Plugin):
    """The base class of plugins that have records; see the module's docstring for the order of the steps."""

    points: Failpoints
    chained = False
    previous_missing = ("missing prevResult from earlier plugin", "missing prevResult from earlier plugin")
    """The error of ADD and CHECK of a chained reference plugin without `prevResult`."""
    """Whether it comes after a plugin that makes the pod's link."""
    uses_namespace = True
    """Whether ADD and CHECK need the pod's namespace to exist."""
    sets: tuple[str, ...] = ()
    """Sets of the nft table `inet podwire` whose elements it tags; GC removes those without a record."""
    bridge_sets: tuple[str, ...] = ()
    """The same in the table `bridge podwire`."""
    connects_first = False
    """Whether it has `connect`, so that an IPAM plugin can ask over the pod's link."""
    tags_links = False
    """Whether it tags links on the host; GC calls `release_link` for those without a record."""

    def validate(self, call: Call) -> bool:
        """Raises CniError for an invalid configuration. Returns whether the configuration requests anything."""
        raise NotImplementedError

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        """Returns the record, completed with all that `detach` needs. Raises what would make `attach` fail."""
        return record

    def connect(self, call: Call, ends: Ends, record: Record) -> None:
        """Makes the pod's link, up and without addresses; `attach` goes on with it. Called only if IPAM needs it."""
        raise NotImplementedError

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        """Does the work. `given` is the result of the IPAM plugin, or of the previous plugin for a chained one."""
        raise NotImplementedError

    def detach(self, call: Call, record: Record) -> None:
        """Undoes `attach`, or any part of it; succeeds if there is nothing to undo.

        The record may be lost (`Record.is_lost`): then it has no state to restore, its configuration and result are
        those of the call, and nothing may be left out because of them.
        """
        raise NotImplementedError

    def detach_reference(self, call: Call, record: Record) -> None:
        """Undoes what the reference plugin of the same name did for an attachment, which therefore has no record.

        The record is lost; its result is `prevResult`, if the runtime sent one.
        """

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        """Whether the reference plugin of the same name made the attachment. Raises CniError if that has changed."""
        return False

    def collect_reference(self, call: Call, valid: Valid) -> None:
        """GC: removes what the reference plugin of the same name made on this network for others than the valid."""

    def hand_over(self, call: Call, record: Record, made: Result, variant: str) -> None:
        """Makes the rules of the reference plugin of the same name, then removes ours; idempotent (`handover.py`).

        `made` has the pod's links and addresses as they are; `variant` is the host's iptables, `nft` or `legacy`.
        """

    def release_link(self, call: Call, link: Link) -> None:
        """GC: releases a link of the host that has an owner tag and no record."""
        delete_orphan(call, link)

    def is_attached(self, call: Call, ends: Ends, record: Record) -> bool:
        """Whether a repeated ADD can return the recorded result; False releases the record and begins again."""
        return False

    def is_link_up(self, call: Call) -> bool:
        """Whether the pod's link is up after ADD."""
        return True

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        """Raises CniError for whatever is not as `attach` made it, beyond the pod's addresses and routes."""
        raise NotImplementedError

    def check_usable(self, call: Call) -> None:
        """Raises CniError or LinuxError if the host cannot do what the configuration requests."""

    def add(self, call: Call) -> Result:
        previous = self._previous(call) if self.chained else Result()
        if not self.chained:
            self._check_ipam_type(call)
            ipam_delegate.check_available(call)
        requested = self.validate(call)
        inode = pod_namespace(call) if self.uses_namespace else 0
        attachments = Attachments(call.config, self.name)
        with attachments.lock(call), Ends(call.invocation.netns) as ends:
            earlier = _read_for_add(call, attachments)
            if earlier is not None:
                if earlier.inode == inode and earlier.result is not None and self.is_attached(call, ends, earlier):
                    _check_same_config(call, earlier)
                    return results.decode(earlier.result, LATEST)
                self.release(call, earlier, attachments)
            if not requested:
                return previous
            if not self.chained:
                try:
                    check_name(ends.pod, call.invocation.ifname)
                except CniError:  # of an attachment whose record is lost, or not ours
                    self.release(call, lost_record(call), attachments)
                    check_name(ends.pod, call.invocation.ifname)
            record = self.prepare(call, ends, new_record(call, inode), previous)
            attachments.write(record)
            with ExitStack() as undo:
                undo.push(partial(self._undo, call, record, attachments))
                failpoint(self.points.recorded)
                has_ipam = not self.chained and ipam_delegate.ipam_type(call.config.raw)
                if has_ipam and ipam_delegate.needs_link(call.config.raw):
                    self.connect(call, ends, record)
                given = ipam_delegate.add(call) if has_ipam else previous
                failpoint(self.points.leased)
                result = self.attach(call, ends, record, given)
                failpoint(self.points.attached)
                if not self.chained:
                    attachments.write(record._replace(result=results.encode(result, LATEST)))
                undo.pop_all()
        failpoint(self.points.added)
        return result

    def _check_ipam_type(self, call: Call) -> None:
        if ipam_delegate.needs_link(call.config.raw) and not self.connects_first:
            kind = ipam_delegate.ipam_type(call.config.raw)
            raise CniError(Code.UNSUPPORTED_FIELD, f"ipam.type: {kind!r} is not supported by podwire's {self.name}")

    def _previous(self, call: Call) -> Result:
        after = f"; {self.name} comes after a plugin that makes a link"
        return require_previous(call, after, self.previous_missing[call.invocation.command == "CHECK"])

    def _undo(
        self,
        call: Call,
        record: Record,
        attachments: Attachments,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        try:
            self.release(call, record, attachments)
        except Exception as also:  # noqa: BLE001 - the first error is the one to report
            if error is not None:
                error.add_note(f"and the undo failed: {also}")

    def release(self, call: Call, record: Record, attachments: Attachments) -> None:
        """Releases all that a record names, then removes the record."""
        as_added = changed_config(call, record.config)
        steps = [partial(self._detach, call, record)]
        if record.is_lost and call.invocation.command != "ADD":
            steps.append(partial(self.detach_reference, call, record))
        link_is_needed = ipam_delegate.needs_link(record.config)
        steps.insert(0 if link_is_needed else len(steps), partial(self._release_addresses, as_added))
        run_all(*steps)
        failpoint(self.points.released)
        attachments.remove(record)

    def _detach(self, call: Call, record: Record) -> None:
        self.detach(call, record)
        failpoint(self.points.detached)

    def _release_addresses(self, call: Call) -> None:
        if not self.chained and ipam_delegate.ipam_type(call.config.raw):
            ipam_delegate.delete(call)

    def delete(self, call: Call) -> None:
        attachments = Attachments(call.config, self.name)
        with attachments.lock(call):
            self.release(call, attachments.find(call) or lost_record(call), attachments)
            attachments.note_deletion(call)

    def check(self, call: Call) -> None:
        previous = self._previous(call) if self.chained else require_previous(call)
        if not self.validate(call):
            return
        if self.uses_namespace:
            pod_namespace(call)
        record = self._read_for_check(call)
        with Ends(call.invocation.netns) as ends:
            if record is None:
                if not self.check_reference(call, ends, previous):
                    raise self._unknown(call)
                return
            if not self.chained:
                if record.result is None:
                    raise self._unknown(call)
                if ipam_delegate.ipam_type(call.config.raw):
                    ipam_delegate.check(call)
                made = results.decode(record.result, LATEST)
                check_pod(ends.pod, call.invocation.netns, previous, made, up=self.is_link_up(call))
            self.check_attached(call, ends, record, previous)

    def _read_for_check(self, call: Call) -> Record | None:
        try:
            return Attachments(call.config, self.name).read(call)
        except Damaged as error:
            message = f"{self.name} cannot read its record of {call.invocation.container_id} {call.invocation.ifname}"
            raise CniError(Code.NOT_AS_ADDED, message, f"{error}; DEL releases the attachment without it") from error

    def _unknown(self, call: Call) -> CniError:
        who = f"{call.invocation.container_id} {call.invocation.ifname}"
        if self.chained:
            return CniError(Code.NOT_AS_ADDED, f"{self.name} has no record of {who}")
        return CniError(Code.UNKNOWN_CONTAINER, f"{who} is not attached")

    def gc(self, call: Call, valid: Valid) -> None:
        attachments = Attachments(call.config, self.name)
        run_all(
            lambda: collect(
                call,
                valid,
                attachments,
                lambda record, as_delete: self.release(as_delete, record, attachments),
                sets=self.sets,
                bridge_sets=self.bridge_sets,
                release_link=self.release_link if self.tags_links else None,
            ),
            lambda: self.collect_reference(call, valid | attachments.owners()),
        )

    def status(self, call: Call) -> None:
        self.validate(call)
        self._check_ipam_type(call)
        attachments = Attachments(call.config, self.name)
        attachments.check_writable()
        with status_errors(attachments):
            self.check_usable(call)
        ipam_delegate.status(call)


def _read_for_add(call: Call, attachments: Attachments) -> Record | None:
    """Raises NewerFormat: an attachment of a newer podwire may be in use."""
    try:
        return attachments.read(call)
    except Damaged as error:
        call.warn(f"podwire cni: released by owner tags before ADD, without the attachment record {error}")
        return lost_record(call)


def _check_same_config(call: Call, earlier: Record) -> None:
    if earlier.config != new_record(call).config:
        who = f"{earlier.container_id} {earlier.ifname}"
        raise CniError(Code.IN_USE, f"{who} is already attached with another configuration", "DEL it first")
