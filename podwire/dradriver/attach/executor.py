"""Executes the steps of a plan for one device, on the host and in its pod."""

import errno
import logging
from contextlib import suppress

from podwire.dradriver.attach import link_config, link_match, made_links, steps
from podwire.dradriver.attach.ports import BridgePorts
from podwire.dradriver.attach.records import Record
from podwire.dradriver.attach.steps import Step
from podwire.failpoints import failpoint
from podwire.linux import errors
from podwire.linux.net import borrow, link_sysctls
from podwire.linux.net.ebpf_detach import detach_programs
from podwire.linux.net.link_attributes import Attributes, DetailedLinks, LinkDetails
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.values import Link

_log = logging.getLogger("podwire.dradriver")


class StepFailed(Exception):
    def __init__(self, step: Step, error: Exception) -> None:
        super().__init__(f"{step.name}: {error}")
        self.step, self.error = step, error


class LinkGone(errors.NoSuchLink):
    """The device is neither in the pod nor on the host: the kernel returns hardware late; a virtual link has ended."""


class StepExecutor:
    """Knows the location of the device and follows its moves. `pod` is None when the pod's namespace is gone."""

    def __init__(self, record: Record, host: NamespaceHandle, pod: NamespaceHandle | None, ports: BridgePorts) -> None:
        self._record, self._host, self._pod, self._ports = record, host, pod, ports
        self.here: NamespaceHandle | None = None
        """The namespace of the device; None when it is in neither, or was not located yet."""
        self.ifindex = 0
        self.lost: list[str] = []

    def locate_on_host(self) -> Link | None:
        """Finds it under the names that it can have there, without a dump of all links."""
        links = DetailedLinks(self._host.netlink)
        likely = []
        for name in link_match.names_on_host(self._record):
            with suppress(errors.NoSuchLink):
                likely.append(links.get(name))
        return self._set_location(self._host, link_match.find_link(self._record, likely))

    def locate(self) -> None:
        """Finds it in the pod, else on the host, under any name."""
        in_pod = None if self._pod is None else self._find_in(self._pod)
        if self._set_location(self._pod, in_pod) is None and self.locate_on_host() is None:
            self._set_location(self._host, self._find_in(self._host))

    def _find_in(self, place: NamespaceHandle) -> LinkDetails | None:
        return link_match.find_link(self._record, DetailedLinks(place.netlink).list())

    def _set_location(self, place: NamespaceHandle | None, details: LinkDetails | None) -> Link | None:
        self.here, self.ifindex = (None, 0) if details is None else (place, details.link.ifindex)
        return None if details is None else details.link

    def run(self, plan: tuple[Step, ...]) -> None:
        """Executes steps one after the other. Raises StepFailed for the first that fails."""
        for step in plan:
            try:
                self._do(step)
                failpoint(step.done)
            except Exception as error:
                raise StepFailed(step, error) from error

    def _do(self, step: Step) -> None:  # noqa: C901 - one branch for each kind of step
        match step:
            case steps.TakeDown():
                DetailedLinks(self._host.netlink).change(self.ifindex, Attributes(alias=step.tag, up=False))
            case steps.Move():
                self._move(step)
            case steps.Make():
                self.ifindex = made_links.make(self._host, self._in_pod, step, self._ports)
                self.here = self._in_pod
            case steps.SetMtu():
                self._set_mtu(step.mtu)
            case steps.SetSysctls():
                name = self._record.allocation.settings.name
                self._in_pod.visited(lambda: link_sysctls.write(name, step.values))
            case steps.BringUp():
                KernelLinks(self._in_pod.netlink).change(self.ifindex, up=True)
            case steps.SetFeatures():
                self._set_features(step)
            case steps.AddAddresses():
                link_config.add_addresses(self._in_pod, self.ifindex, step)
            case steps.AddRoutes():
                link_config.add_routes(self._in_pod, self.ifindex, step)
            case steps.AddRules():
                link_config.add_rules(self._in_pod, step)
            case steps.AddNeighbours():
                link_config.add_neighbours(self._in_pod, self.ifindex, step)
            case steps.DetachPrograms():
                self._detach_programs()
            case steps.JoinVrf():
                made_links.join_vrf(self._in_pod, self.ifindex, step.vrf)
            case steps.Shape():
                made_links.shape(self._host, self._in_pod, self.ifindex, step)
            case _:
                self._undo(step)

    def _undo(self, step: Step) -> None:
        match step:
            case steps.TakeAway():
                link_config.take_away(self._in_pod, self.ifindex, step)
            case steps.DeleteQueue():
                self._delete_in_pod(step.queue)
            case steps.DeleteVrf():
                self._delete_in_pod(step.vrf.name)
            case steps.DeleteRules():
                if self._pod is not None:
                    link_config.delete_rules(self._pod, step)
            case steps.Return():
                self._return(step)
            case steps.Unmake():
                self.unmake(step.host_end)
            case steps.Restore():
                if self.here is None:
                    raise LinkGone(errno.ENODEV, f"find {step.snapshot.name}", "neither the pod nor the host has it")
                self.lost += borrow.restore_link(self._host, self.ifindex, step.snapshot)
            case _:
                raise NotImplementedError(step.name)

    @property
    def _in_pod(self) -> NamespaceHandle:
        if self._pod is None:
            raise errors.NoSuchNamespace(errno.ENOENT, "work in the pod's namespace")
        return self._pod

    def _delete_in_pod(self, name: str) -> None:
        """Deletes an ifb or VRF that was made for the device."""
        if self._pod is not None:
            with suppress(errors.NoSuchLink):
                KernelLinks(self._pod.netlink).delete(name)

    def _move(self, step: steps.Move) -> None:
        self.ifindex = borrow.lend_link(self._host, self.ifindex, self._in_pod, step.attributes)
        self.here = self._in_pod

    def _set_mtu(self, mtu: int) -> None:
        """A DHCP server does not know the limits of the link; the link keeps its MTU if the leased one is rejected."""
        try:
            KernelLinks(self._in_pod.netlink).change(self.ifindex, mtu=mtu)
        except errors.Refused as error:
            fields = {"device": self._record.allocation.device.name, "error": str(error)}
            _log.warning("kernel rejected leased MTU", extra=fields)

    def _set_features(self, step: steps.SetFeatures) -> None:
        ethtool = self._in_pod.ethtool
        if step.features:
            ethtool.set_features(self.ifindex, step.features)
            now = ethtool.features(self.ifindex)
            for name, value in step.features.items():
                if (name in now.wanted) != value:
                    raise errors.Unsupported(
                        errno.EOPNOTSUPP, f"turn {name} {'on' if value else 'off'}", "the feature is fixed"
                    )
        if step.flags:
            ethtool.set_flags(self.ifindex, step.flags)

    def _detach_programs(self) -> None:
        netlink, index = self._in_pod.netlink, self.ifindex
        if count := self._in_pod.visited(lambda: detach_programs(netlink, index)):
            self.lost.append(f"{count} eBPF programs, which were detached")

    def unmake(self, host_end: str) -> None:
        """Deletes a made link where it is; deleting the host's end of a veth deletes the pod's end, too."""
        if host_end:
            made_links.delete_tagged(self._host, host_end, self._record.tag)
            self.locate()
        if self.here is not None:
            with suppress(errors.NoSuchLink):
                made_links.delete(self.here, self.ifindex)
        self.here, self.ifindex = None, 0

    def _return(self, step: steps.Return) -> None:
        if self._pod is not None and self.here is self._pod:
            self.ifindex = borrow.return_link(self._pod, self.ifindex, self._host, step.snapshot, step.spare)
            self.here = self._host
