"""The order in which ptp, macvlan and host-device attach a pod; what each does with links is its own.

ADD: 1. look at what is asked for, and refuse.  2. Write the record.  3. Addresses.  4. The link, with addresses and
routes.  5. Write the result.  Whatever fails, the record is released.

DEL and GC need the record alone: 1. the link, 2. addresses, each whatever became of the other, 3. the record.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from podwire.cniplugins import ipam_delegate as delegate
from podwire.cniplugins.attachments import Attachments, Record, new_record, suffered
from podwire.cniplugins.bridge.check import check_pod
from podwire.cniplugins.garbage_collection import collect
from podwire.cniplugins.pod_link import check_name
from podwire.cniplugins.skeleton import Call, Plugin, all_of, pod_netns
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import identity
from podwire.linux.values import Link
from podwire.protocols.cni import results
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.versions import LATEST

HERE = "/proc/thread-self/ns/net"
"""The namespace of the host, as the one who calls sees it."""


class Points(NamedTuple):
    """The failpoints of a plugin."""

    recorded: str
    leased: str
    connected: str
    configured: str
    added: str
    disconnected: str
    returned: str


def declared(plugin: str) -> Points:
    steps = {
        "recorded": "the record of an attachment is written, nothing is done yet",
        "leased": "a pod has its addresses, and no link",
        "connected": "a pod has its link, without addresses",
        "configured": "all is done, the record does not tell the result",
        "added": "the record tells the result, the runtime was not told",
        "disconnected": "DEL: the link is gone, the addresses are still leased",
        "returned": "DEL: everything is given back, the record is still there",
    }
    return Points(**{step: declare(f"cni.{plugin}-{step}", when) for step, when in steps.items()})


class Ends(NamedTuple):
    pod: KernelNetwork
    host: KernelNetwork


class Main(NamedTuple):
    """What a plugin does by itself."""

    name: str
    points: Points
    prepare: Callable[[Call, Ends, Record], Record]
    """Refuses what cannot be done, before anything is; completes the record."""
    connect: Callable[[Call, Ends, Record, Result], Result]
    """Makes the link with the addresses that were given."""
    disconnect: Callable[[Record, Call], None]
    """Takes it away, if it is there."""
    stands: Callable[[Record, Ends], bool]
    """Whether what ADD made is there."""
    check: Callable[[Call, Ends, Record], None]
    """Beyond the pod's addresses and routes."""
    status: Callable[[Call], None]
    """What an ADD would meet."""
    sets: Collection[str] = ()
    """The nft sets that it puts elements into."""
    links: bool = False
    """Whether a link with its mark, and nobody's record, is to be deleted from the host."""


def add(main: Main, call: Call) -> Result:
    inode = pod_netns(call)
    attachments = Attachments(call.config, main.name)
    with attachments.turn(call), KernelNetwork(call.invocation.netns) as pod, KernelNetwork() as host:
        ends = Ends(pod, host)
        earlier = attachments.read(call)
        if earlier is not None:
            if earlier.inode == inode and (kept := _kept(main, earlier, call, ends)) is not None:
                return kept
            release(main, earlier, call, attachments)
        delegate.check_there(call)
        check_name(pod, call.invocation.ifname)
        record = main.prepare(call, ends, new_record(call, inode))
        attachments.write(record)
        try:
            failpoint(main.points.recorded)
            given = delegate.add(call) if delegate.ipam_type(call.config.raw) else Result()
            failpoint(main.points.leased)
            result = main.connect(call, ends, record, given)
            failpoint(main.points.configured)
        except BaseException as error:
            _undo(main, record, call, attachments, error)
            raise
        attachments.write(record._replace(result=results.encode(result, LATEST)))
    failpoint(main.points.added)
    return result


def _kept(main: Main, record: Record, call: Call, ends: Ends) -> Result | None:
    """The result of an earlier ADD that still stands; None when it was never finished, or its link is gone."""
    if record.result is None or not main.stands(record, ends):
        return None
    if record.config != new_record(call).config:
        told = f"{record.container_id} {record.ifname} is attached already, with another configuration"
        raise CniError(Code.IN_USE, told, "DEL comes first")
    return results.decode(record.result, LATEST)


def _undo(main: Main, record: Record, call: Call, attachments: Attachments, error: BaseException) -> None:
    try:
        release(main, record, call, attachments)
    except CniError as also:
        error.add_note(f"and it is not undone: {also}")


def release(main: Main, record: Record, call: Call, attachments: Attachments) -> None:
    """Give back all that a record names, then forget it."""
    then = call._replace(config=call.config._replace(raw=record.config))
    all_of(lambda: _disconnect(main, record, call), lambda: _give_back(then))
    failpoint(main.points.returned)
    attachments.remove(record)


def _disconnect(main: Main, record: Record, call: Call) -> None:
    main.disconnect(record, call)
    failpoint(main.points.disconnected)


def _give_back(call: Call) -> None:
    if delegate.ipam_type(call.config.raw):
        delegate.delete(call)


def delete(main: Main, call: Call) -> None:
    attachments = Attachments(call.config, main.name)
    with attachments.turn(call):
        record = attachments.read(call)
        if record is not None:
            release(main, record, call, attachments)
        else:
            _give_back(call)  # by the ids alone


def check(main: Main, call: Call) -> None:
    pod_netns(call)
    previous = call.config.previous()
    if previous is None:
        raise CniError(Code.BAD_CONFIG, "prevResult: missing")
    record = Attachments(call.config, main.name).peek(call)
    if record is None or record.result is None:
        told = f"{call.invocation.container_id} {call.invocation.ifname} is not attached"
        raise CniError(Code.UNKNOWN_CONTAINER, told)
    if delegate.ipam_type(call.config.raw):
        delegate.check(call)
    netns = call.invocation.netns
    with KernelNetwork(netns) as pod, KernelNetwork() as host:
        check_pod(pod, netns, previous, results.decode(record.result, LATEST))
        main.check(call, Ends(pod, host), record)


def gc(main: Main, call: Call, valid: Valid) -> None:
    attachments = Attachments(call.config, main.name)
    collect(
        call,
        valid,
        attachments,
        lambda record, then: release(main, record, then, attachments),
        sets=main.sets,
        links=main.links,
    )


def status(main: Main, call: Call) -> None:
    attachments = Attachments(call.config, main.name)
    attachments.check_writable()
    with suffered(attachments):
        main.status(call)
    delegate.status(call)


def pod_of(record: Record, call: Call) -> KernelNetwork | None:
    """The namespace that a record means, wherever it is pinned; None when it is gone."""
    for path in filter(None, (call.invocation.netns, record.netns)):
        try:
            if identity(path) == record.inode:
                return KernelNetwork(path)
        except (linux.NoSuchNamespace, linux.WrongKind):
            continue
    return None


def marked(network: KernelNetwork, record: Record) -> Link | None:
    """An attachment's link, whatever its name is by now."""
    return next((each for each in network.links.list() if record.marks(each.alias)), None)


def plugin(main: Main) -> Plugin:
    return Plugin(
        main.name,
        add=lambda call: add(main, call),
        check=lambda call: check(main, call),
        delete=lambda call: delete(main, call),
        gc=lambda call, valid: gc(main, call, valid),
        status=lambda call: status(main, call),
    )
