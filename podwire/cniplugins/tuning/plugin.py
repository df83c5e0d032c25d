"""tuning: sysctls of a pod's network namespace, and attributes of its interface.

What was there before is in the record. DEL puts it back where the namespace and the interface are still those of ADD.
"""

from contextlib import suppress
from functools import partial

from podwire.cniplugins import chained
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.chained import agree
from podwire.cniplugins.skeleton import Call, all_of
from podwire.cniplugins.tuning.settings import NETWORK, Settings, parse_settings, patterns, told
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import identity
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result

ALLOWLIST = "/etc/cni/tuning/allowlist.conf"
"""An administrator's patterns, one a line; without the file all sysctls of a network are allowed."""

WRITTEN = declare("tuning.written", "sysctls are written, the interface is as it was")


def _settings(call: Call) -> Settings:
    try:
        with open(ALLOWLIST, encoding="utf-8") as file:
            allowed = patterns(file.read())
    except FileNotFoundError:
        allowed = None
    return parse_settings(call.config, call.invocation, allowed)


def _wanted(call: Call) -> bool:
    settings = _settings(call)
    return bool(settings.sysctl or settings.link)


def _prepare(call: Call, record: Record, _previous: Result) -> Record:
    settings = _settings(call)
    sysctls = KernelSysctls(call.invocation.netns, allowed=NETWORK)
    values = {name: sysctls.read(name) for name in settings.sysctl}
    with KernelNetwork(call.invocation.netns) as pod:
        link = pod.links.get(record.ifname)
    attributes = {name: getattr(link, name) for name in settings.link}
    return record._replace(before={"ifindex": link.ifindex, "link": attributes, "sysctl": values})


def _do(call: Call, record: Record, previous: Result) -> Result:
    settings = _settings(call)
    sysctls = KernelSysctls(call.invocation.netns, allowed=NETWORK)
    for name, value in settings.sysctl.items():
        sysctls.write(name, value)
    failpoint(WRITTEN)
    if settings.link:
        with KernelNetwork(call.invocation.netns) as pod:
            pod.links.change(record.ifname, **settings.link)
    return told(previous, record.ifname, settings.link)


def _undo(call: Call, record: Record) -> None:
    """Put back what can be put back: the namespace is about to go, and nobody's deletion waits for its sysctls."""
    netns = _netns_of(call, record)
    if netns is None:
        return
    sysctls = record.before["sysctl"].items()
    try:
        all_of(*(partial(_put_back_sysctl, netns, *each) for each in sysctls), lambda: _put_back_link(netns, record))
    except CniError as error:
        call.tell(f"podwire tuning: {record.container_id} {record.ifname} keeps some of its settings: {error}")


def _netns_of(call: Call, record: Record) -> str | None:
    for path in filter(None, (call.invocation.netns, record.netns)):
        with suppress(linux.NoSuchNamespace, linux.WrongKind):
            if identity(path) == record.inode:
                return path
    return None


def _put_back_sysctl(netns: str, name: str, value: str) -> None:
    with suppress(linux.NoSuchSysctl):
        KernelSysctls(netns, allowed=NETWORK).write(name, value)


def _put_back_link(netns: str, record: Record) -> None:
    with KernelNetwork(netns) as pod, suppress(linux.NoSuchLink):
        if record.before["link"] and pod.links.get(record.ifname).ifindex == record.before["ifindex"]:
            pod.links.change(record.before["ifindex"], **record.before["link"])


def _check(call: Call, record: Record, _previous: Result) -> None:
    settings = _settings(call)
    sysctls = KernelSysctls(call.invocation.netns, allowed=NETWORK)
    for name, value in settings.sysctl.items():
        found = sysctls.read(name)
        agree(found.split() == value.split(), f"the sysctl {name} is {found!r} and not {value!r}")
    with KernelNetwork(call.invocation.netns) as pod:
        try:
            link = pod.links.get(record.ifname)
        except linux.NoSuchLink as error:
            raise CniError(Code.NOT_AS_ADDED, f"there is no link {record.ifname}") from error
    for name, value in settings.link.items():
        found = getattr(link, name)
        agree(found == value, f"{name} of {record.ifname} is {found} and not {value}")


PLUGIN = chained.plugin(chained.Part("tuning", chained.declared("tuning"), _wanted, _prepare, _do, _undo, _check))
