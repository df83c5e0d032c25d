"""Steps, done: one device, between the host and its pod."""

import errno
import logging
from contextlib import suppress

from podwire.dradriver.attach import link_config, link_match, made_links, snapshots, steps
from podwire.dradriver.attach.netns import Place
from podwire.dradriver.attach.records import Record
from podwire.dradriver.attach.steps import Step
from podwire.failpoints import failpoint
from podwire.linux import errors
from podwire.linux.net import link_sysctls
from podwire.linux.net.ebpf_detach import detach_programs
from podwire.linux.net.link_attributes import Attributes, DetailedLinks, LinkDetails
from podwire.linux.net.links import KernelLinks
from podwire.linux.values import Link

_log = logging.getLogger("podwire.dradriver")


class StepFailed(Exception):
    def __init__(self, step: Step, why: Exception) -> None:
        super().__init__(f"{step.name}: {why}")
        self.step, self.why = step, why


class LinkGone(errors.NoSuchLink):
    """A device that is nowhere: the kernel gives hardware back in its own time, all else ended with its namespace."""


class Hands:
    """Knows where the device is, and follows it. A pod that is gone is None: what was in it is gone or back."""

    def __init__(self, record: Record, host: Place, pod: Place | None) -> None:
        self._record, self._host, self._pod = record, host, pod
        self.here: Place | None = None
        """Where the device is; None when it is nowhere, or nobody has looked."""
        self.ifindex = 0
        self.lost: list[str] = []

    def look_on_host(self) -> Link | None:
        """Under the names that it can have there, before all links are asked for."""
        links = DetailedLinks(self._host.netlink)
        likely = []
        for name in link_match.names_on_host(self._record):
            with suppress(errors.NoSuchLink):
                likely.append(links.get(name))
        there = link_match.found(self._record, likely)
        return self._is_at(self._host, there)

    def look(self) -> None:
        """Find it in the pod, else on the host, under whatever name."""
        there = None if self._pod is None else link_match.found(self._record, DetailedLinks(self._pod.netlink).list())
        if self._is_at(self._pod, there) is None and self.look_on_host() is None:
            self._is_at(self._host, link_match.found(self._record, DetailedLinks(self._host.netlink).list()))

    def _is_at(self, place: Place | None, there: LinkDetails | None) -> Link | None:
        self.here, self.ifindex = (None, 0) if there is None else (place, there.link.ifindex)
        return None if there is None else there.link

    def do(self, plan: tuple[Step, ...]) -> None:
        """One after the other. Raises StepFailed for the first that fails."""
        for step in plan:
            try:
                self._do(step)
                failpoint(step.done)
            except Exception as error:
                raise StepFailed(step, error) from error

    def _do(self, step: Step) -> None:  # noqa: C901 - one line for each kind of step
        match step:
            case steps.TakeDown():
                DetailedLinks(self._host.netlink).change(self.ifindex, Attributes(alias=step.tag, up=False))
            case steps.Move():
                self._move(step)
            case steps.Make():
                self.ifindex, self.here = made_links.make(self._host, self._there, step), self._there
            case steps.SetMtu():
                self._set_mtu(step.mtu)
            case steps.SetSysctls():
                name = self._record.order.settings.name
                self._there.visited(lambda: link_sysctls.write(name, step.values))
            case steps.BringUp():
                KernelLinks(self._there.netlink).change(self.ifindex, up=True)
            case steps.SetFeatures():
                self._set_features(step)
            case steps.AddAddresses():
                link_config.add_addresses(self._there, self.ifindex, step)
            case steps.AddRoutes():
                link_config.add_routes(self._there, self.ifindex, step)
            case steps.AddRules():
                link_config.add_rules(self._there, step)
            case steps.AddNeighbours():
                link_config.add_neighbours(self._there, self.ifindex, step)
            case steps.DetachPrograms():
                self._detach_programs()
            case steps.JoinVrf():
                made_links.join_vrf(self._there, self.ifindex, step.vrf)
            case steps.Shape():
                made_links.shape(self._host, self._there, self.ifindex, step)
            case _:
                self._undo(step)

    def _undo(self, step: Step) -> None:
        match step:
            case steps.TakeAway():
                link_config.take_away(self._there, self.ifindex, step)
            case steps.DeleteQueue():
                self._forget(step.queue)
            case steps.DeleteVrf():
                self._forget(step.vrf.name)
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
                self.lost += snapshots.restore(self._host, self.ifindex, step.snapshot)
            case _:
                raise NotImplementedError(step.name)

    @property
    def _there(self) -> Place:
        if self._pod is None:
            raise errors.NoSuchNamespace(errno.ENOENT, "work in the pod's namespace")
        return self._pod

    def _forget(self, name: str) -> None:
        """Delete a link of the pod that was made beside the device."""
        if self._pod is not None:
            with suppress(errors.NoSuchLink):
                KernelLinks(self._pod.netlink).delete(name)

    def _move(self, step: steps.Move) -> None:
        """The kernel moves first and names then: a name that is taken is found out before."""
        name = step.attributes.name or ""
        with suppress(errors.NoSuchLink):
            KernelLinks(self._there.netlink).get(name)
            raise errors.LinkExists(errno.EEXIST, f"name the link {name}", "the pod has such a link")
        DetailedLinks(self._host.netlink).change(self.ifindex, step.attributes, self._there.netns)
        self.here, self.ifindex = self._there, KernelLinks(self._there.netlink).get(name).ifindex

    def _set_mtu(self, mtu: int) -> None:
        """A server does not know what each link can: where that is less, the link keeps what it has."""
        try:
            KernelLinks(self._there.netlink).change(self.ifindex, mtu=mtu)
        except errors.Refused as error:
            _log.warning(
                "a leased MTU is not taken", extra={"device": self._record.order.offered.device, "why": str(error)}
            )

    def _set_features(self, step: steps.SetFeatures) -> None:
        ethtool = self._there.ethtool
        if step.features:
            ethtool.set_features(self.ifindex, step.features)
            now = ethtool.features(self.ifindex)
            for name, value in step.features.items():
                if (name in now.wanted) != value:
                    raise errors.Unsupported(errno.EOPNOTSUPP, f"turn {name} {'on' if value else 'off'}", "it is fixed")
        if step.flags:
            ethtool.set_flags(self.ifindex, step.flags)

    def _detach_programs(self) -> None:
        netlink, index = self._there.netlink, self.ifindex
        if count := self._there.visited(lambda: detach_programs(netlink, index)):
            self.lost.append(f"{count} eBPF programs, which were taken off")

    def unmake(self, host_end: str) -> None:
        """The end on the host takes the other one along; all else is deleted where it is."""
        if host_end:
            made_links.delete_marked(self._host, host_end, self._record.tag)
            self.look()
        if self.here is not None:
            with suppress(errors.NoSuchLink):
                made_links.delete(self.here, self.ifindex)
        self.here, self.ifindex = None, 0

    def _return(self, step: steps.Return) -> None:
        if self._pod is None or self.here is not self._pod:
            return
        links = DetailedLinks(self._pod.netlink)
        links.change(self.ifindex, Attributes(up=False))
        try:
            self._leave(links, step.attributes)
        except errors.LinkExists:
            self._leave(links, step.attributes._replace(name=step.spare))

    def _leave(self, links: DetailedLinks, attributes: Attributes) -> None:
        """The name is found out before: by the time that the kernel misses it, the link is under way."""
        name = attributes.name or ""
        with suppress(errors.NoSuchLink):
            KernelLinks(self._host.netlink).get(name)
            raise errors.LinkExists(errno.EEXIST, f"name the link {name}", "the host has such a link")
        links.change(self.ifindex, attributes, self._host.netns)
        self.here, self.ifindex = self._host, KernelLinks(self._host.netlink).get(name).ifindex
