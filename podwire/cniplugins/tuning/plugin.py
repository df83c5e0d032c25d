"""tuning: sysctls of a pod's network namespace, and attributes of its interface.

The record has the previous values. DEL restores them if the namespace and the interface are still those of ADD.
"""

import os
from contextlib import suppress
from functools import partial

from podwire.cniplugins.attachments import Record, lost_record
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect, expect_link
from podwire.cniplugins.pod_link import pod_path
from podwire.cniplugins.skeleton import Call, run_all
from podwire.cniplugins.tuning.settings import NETWORK, Settings, parse_settings, patterns, updated_result
from podwire.durable.files import replace_file
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import dumped, loaded_object, taken

ALLOWLIST = "/etc/cni/tuning/allowlist.conf"
"""The administrator's patterns, one per line; without the file all sysctls of a network namespace are allowed."""

BACKUPS = "/run/cni/tuning"
"""The directory in which the reference plugin saves attributes of links."""
_BACKUP = {"mac": "mac", "mtu": "mtu", "promisc": "promiscuous", "allmulti": "all_multicast", "txQLen": "queue"}
"""Keys of such a file, and the attributes of a link."""
_LONGEST_BACKUP = 1 << 16

WRITTEN = declare("cni.tuning-written", "sysctls are written, the interface is unchanged")


class Tuning(OrderedPlugin):
    name = "tuning"
    points = declare_steps(name)
    chained = True
    previous_missing = ("Required prevResult missing", "Required prevResult missing")

    def validate(self, call: Call) -> bool:
        return any(_settings(call))

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        settings = _settings(call)
        sysctls = KernelSysctls(call.invocation.netns, allowed=NETWORK)
        values = {name: sysctls.read(name) for name in settings.sysctl}
        if not settings.link:  # sysctls need no interface
            return record._replace(before={"ifindex": 0, "link": {}, "sysctl": values})
        link = ends.pod.links.get(record.ifname)
        attributes = {name: getattr(link, name) for name in settings.link}
        return record._replace(before={"ifindex": link.ifindex, "link": attributes, "sysctl": values})

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        settings = _settings(call)
        sysctls = KernelSysctls(call.invocation.netns, allowed=NETWORK)
        for name, value in settings.sysctl.items():
            sysctls.write(name, value)
        failpoint(WRITTEN)
        if settings.link:
            ends.pod.links.change(record.ifname, **settings.link)
        return updated_result(given, record.ifname, settings.link)

    def detach(self, call: Call, record: Record) -> None:
        """Restores what it can. A failure is a warning: the namespace ends soon, and DEL must not wait for a sysctl."""
        netns = pod_path(call, record)
        if record.is_lost and netns is not None and _is_requested(call) and not os.path.exists(_backup(call, record)):
            who = f"{record.container_id} {record.ifname}"
            call.warn(f"podwire tuning: the settings of {who} are not restored: their record is lost")
        if netns is None or record.is_lost:
            return
        sysctls = [partial(_restore_sysctl, netns, *item) for item in record.before["sysctl"].items()]
        try:
            run_all(*sysctls, partial(_restore_link, netns, record))
        except CniError as error:
            who = f"{record.container_id} {record.ifname}"
            call.warn(f"podwire tuning: cannot restore some settings of {who}: {error}")

    def detach_reference(self, call: Call, record: Record) -> None:
        """Restores the attributes that the reference plugin has saved in a file."""
        path, netns = _backup(call, record), pod_path(call, record)
        try:
            with open(path, "rb") as file:
                saved = {
                    key: value
                    for key, value in loaded_object(file.read(_LONGEST_BACKUP), path).items()
                    if value is not None
                }
        except FileNotFoundError:
            return
        except CniError as error:
            call.warn(f"podwire tuning: cannot read the backup of the reference plugin: {error}")
            saved = {}
        attributes = {ours: saved[key] for key, ours in _BACKUP.items() if saved.get(key) not in (None, "")}
        if netns is not None and attributes:
            try:
                with KernelNetwork(netns) as pod, suppress(linux.NoSuchLink):
                    pod.links.change(record.ifname, **attributes)
            except linux.LinuxError as error:
                call.warn(f"podwire tuning: cannot restore {record.ifname} of {record.container_id}: {error}")
        os.unlink(path)

    def hand_over(self, call: Call, record: Record, made: Result, variant: str) -> None:
        """Saves the attributes that DEL restores where the reference plugin looks for them; it restores no sysctls."""
        attributes = record.before["link"]
        saved = {key: attributes[ours] for key, ours in _BACKUP.items() if ours in attributes}
        if saved:
            directory = taken(record.config, "dataDir", str, "") or BACKUPS
            os.makedirs(directory, exist_ok=True)
            replace_file(os.path.join(directory, f"{record.container_id}_{record.ifname}.json"), dumped(saved))

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        """The reference plugin has no trace of sysctls: what is requested is compared."""
        self.check_attached(call, ends, lost_record(call), previous)
        return True

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        settings = _settings(call)
        sysctls = KernelSysctls(call.invocation.netns, allowed=NETWORK)
        for name, value in settings.sysctl.items():
            actual = sysctls.read(name)
            expect(actual.split() == value.split(), f"the sysctl {name} is {actual!r}, expected {value!r}")
        for name, value in settings.link.items():
            actual = getattr(expect_link(ends.pod, record.ifname), name)
            expect(actual == value, f"{name} of {record.ifname} is {actual}, expected {value}")


def _backup(call: Call, record: Record) -> str:
    """Returns the path of the reference plugin's file; its `dataDir` means another directory than ours."""
    name = f"{record.container_id}_{record.ifname}.json"
    directory = taken(call.config.raw, "dataDir", str, "") or BACKUPS
    path = os.path.join(directory, name)
    return path if os.path.exists(path) else os.path.join(BACKUPS, name)


def _is_requested(call: Call) -> bool:
    try:
        return any(_settings(call))
    except CniError:
        return True  # DEL must not fail for a configuration that is broken


def _settings(call: Call) -> Settings:
    try:
        with open(ALLOWLIST, encoding="utf-8") as file:
            allowed = patterns(file.read())
    except FileNotFoundError:
        allowed = None
    return parse_settings(call.config, call.invocation, allowed)


def _restore_sysctl(netns: str, name: str, value: str) -> None:
    with suppress(linux.NoSuchSysctl):
        KernelSysctls(netns, allowed=NETWORK).write(name, value)


def _restore_link(netns: str, record: Record) -> None:
    with KernelNetwork(netns) as pod, suppress(linux.NoSuchLink):
        if record.before["link"] and pod.links.get(record.ifname).ifindex == record.before["ifindex"]:
            pod.links.change(record.before["ifindex"], **record.before["link"])


PLUGIN = Tuning()
