"""Merges the adjustments of all plugins to a container that is being created."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.checks import check_adjustment
from podwire.protocols.nri.entries import assign, discard, drop, drop_variable, put, put_variable
from podwire.protocols.nri.errors import BadAdjustment, Conflict
from podwire.protocols.nri.fields import HOOKS, LINUX_LISTS, LINUX_MAPS, LINUX_SINGLE, LISTS, MAPS, RDT, Named
from podwire.protocols.nri.owners import REMOVED, Claims
from podwire.protocols.nri.resources import merge_resources
from podwire.protocols.nri.updates import Updates


@dataclass(slots=True)
class _State:
    """Everything that an answer changes, so that it can be changed in a copy first."""

    request: pb.CreateContainerRequest
    adjust: pb.ContainerAdjustment = field(default_factory=pb.ContainerAdjustment)
    updates: Updates = field(default_factory=Updates)

    def copy(self) -> "_State":
        copied = _State(pb.CreateContainerRequest(), updates=self.updates.copy(self.updates.owners.copy()))
        copied.request.CopyFrom(self.request)
        copied.adjust.CopyFrom(self.adjust)
        return copied


class Merger:
    """The answers to one CreateContainer, one after the other, each taken whole or not at all."""

    def __init__(self, request: pb.CreateContainerRequest) -> None:
        self._state = _State(request).copy()

    def add(self, plugin: str, response: pb.CreateContainerResponse) -> None:
        """Take a plugin's answer. Raises Conflict, BadAdjustment; then nothing of it was taken."""
        if not response.HasField("adjust") and not response.update:
            return
        draft = self._state.copy()
        claims = Claims(draft.updates.owners, draft.request.container.id, plugin)
        try:
            check_adjustment(response.adjust)
            _Taking(draft.adjust, draft.request.container, claims).take(response.adjust)
            created = draft.request.container.id
            for number, update in enumerate(response.update):
                if update.container_id == created:
                    raise BadAdjustment(
                        f"update[{number}].container_id", f'asked update of "{created}" during creation'
                    )
                draft.updates.add(plugin, update, f"update[{number}]", None)
        except BadAdjustment as error:
            raise error.by(plugin) from None
        self._state = draft

    @property
    def request(self) -> pb.CreateContainerRequest:
        """The container as adjusted so far, for the next plugin."""
        return self._state.request

    @property
    def adjust(self) -> pb.ContainerAdjustment:
        """All answers in one. No key is both removed and set in it."""
        return self._state.adjust

    @property
    def updates(self) -> list[pb.ContainerUpdate]:
        """Of other containers, in the order in which they were first named."""
        return self._state.updates.others()

    @property
    def owners(self) -> pb.OwningPlugins:
        return self._state.updates.owners.message


@dataclass(frozen=True, slots=True)
class _Taking:
    """One answer on its way into the merged adjustment and into the container that the next plugin sees."""

    into: pb.ContainerAdjustment
    shown: pb.Container
    claims: Claims

    def take(self, adjust: pb.ContainerAdjustment) -> None:
        for name, named in LISTS.items():
            self._list(getattr(adjust, name), getattr(self.into, name), getattr(self.shown, name), named)
        for name, number in MAPS.items():
            self._map(getattr(adjust, name), getattr(self.into, name), getattr(self.shown, name), number)
        self._args(adjust.args)
        self._hooks(adjust.hooks)
        if adjust.HasField("linux"):
            self._linux(adjust.linux, self.into.linux, self.shown.linux)

    def _linux(self, asked: pb.LinuxContainerAdjustment, into: pb.LinuxContainerAdjustment, shown: Any) -> None:
        for name, named in LINUX_LISTS.items():
            self._list(getattr(asked, name), getattr(into, name), getattr(shown, name), named)
        for name, number in LINUX_MAPS.items():
            self._map(getattr(asked, name), getattr(into, name), getattr(shown, name), number)
        for name, number in LINUX_SINGLE.items():
            self._single(asked, into, shown, name, number)
        self._namespaces(asked.namespaces)
        if asked.net_devices:
            self._names_inside(shown.net_devices)
        if asked.HasField("resources"):
            merge_resources(asked.resources, self.claims, into.resources, shown.resources)
        if asked.HasField("rdt"):
            self._rdt(asked.rdt, into.rdt, shown.rdt)

    def _list(self, asked: Sequence[Any], into: Any, shown: Any, named: Named) -> None:
        """Removals first, wherever they stand, so that removing and setting the same is a take-over."""
        removed, entries = _split(asked, named)
        for key, mark in removed.items():
            self.claims.remove(named.owner, key)
            drop(into, named.attribute, key)
            put(into, named.attribute, mark)
            if named.owner == pb.Env:
                drop_variable(shown, key)
            else:
                drop(shown, named.attribute, key)
        for entry in entries:
            key = getattr(entry, named.attribute)
            self.claims.claim(named.owner, key)
            drop(into, named.attribute, REMOVED + key)
            put(into, named.attribute, entry)
            # A container has its environment as NAME=value, an adjustment as pairs.
            if isinstance(entry, pb.KeyValue):
                put_variable(shown, entry.key, entry.value)
            else:
                put(shown, named.attribute, entry)

    def _map(self, asked: Any, into: Any, shown: Any, number: pb.Field) -> None:
        for key in asked:
            if key.startswith(REMOVED):
                plain = key.removeprefix(REMOVED)
                self.claims.remove(number, plain)
                discard(into, plain)
                discard(shown, plain)
                _set_entry(into, key, asked[key])
        for key, value in asked.items():
            if not key.startswith(REMOVED):
                self.claims.claim(number, key)
                discard(into, REMOVED + key)
                _set_entry(into, key, value)
                _set_entry(shown, key, value)

    def _single(self, asked: Any, into: Any, shown: Any, name: str, number: pb.Field) -> None:
        value = getattr(asked, name)
        if not (asked.HasField(name) if hasattr(value, "DESCRIPTOR") else value):
            return
        self.claims.claim(number)
        assign(into, name, value)
        if name in shown.DESCRIPTOR.fields_by_name:  # there is no place to show a memory policy
            assign(shown, name, value)

    def _args(self, asked: Sequence[str]) -> None:
        """An empty first one means: whatever another plugin has set."""
        if not asked:
            return
        args = list(asked)
        if not args[0]:
            self.claims.remove(pb.Args)
            del args[0]
        self.claims.claim(pb.Args)
        self.into.args[:] = args
        self.shown.args[:] = args

    def _hooks(self, asked: pb.Hooks) -> None:
        """Entries add up; there are no conflicts."""
        if not any(getattr(asked, name) for name in HOOKS):
            return
        self.claims.join(pb.OciHooks)
        for name in HOOKS:
            getattr(self.into.hooks, name).extend(getattr(asked, name))
            getattr(self.shown.hooks, name).extend(getattr(asked, name))

    def _namespaces(self, asked: Sequence[pb.LinuxNamespace]) -> None:
        """To remove one is to decide on it like setting it, as in containerd: it cannot be taken over."""
        for entry in asked:
            kind = entry.type.removeprefix(REMOVED)
            self.claims.claim(pb.Namespace, kind)
            self.into.linux.namespaces.append(entry)
            if kind == entry.type:
                put(self.shown.linux.namespaces, "type", entry)
            else:
                drop(self.shown.linux.namespaces, "type", kind)

    def _names_inside(self, devices: Mapping[str, pb.LinuxNetDevice]) -> None:
        """Two devices of the host cannot have one name in the container; containerd leaves that to fail later."""
        inside: dict[str, str] = {}
        for host in sorted(devices):
            name = devices[host].name or host
            if (other := inside.setdefault(name, host)) == host:
                continue
            for path in (other, host):
                if (owner := self.claims.owner(pb.LinuxNetDevices, path)) not in ("", self.claims.plugin):
                    raise Conflict("LinuxNetDevices", name, (self.claims.plugin, owner))
            raise BadAdjustment("adjust.linux.net_devices", f"{host!r} and {other!r} would both be {name!r}")

    def _rdt(self, asked: pb.LinuxRdt, into: pb.LinuxRdt, shown: pb.LinuxRdt) -> None:
        if asked.remove:
            for number in RDT.values():
                self.claims.remove(number)
            into.Clear()
            into.remove = True
            shown.Clear()
        for name, number in RDT.items():
            self._single(asked, into, shown, name, number)


def _split(asked: Sequence[Any], named: Named) -> tuple[dict[str, Any], list[Any]]:
    """Splits entries into those to remove, as marked entries by name, and those to set; names are normalised."""
    removed, entries = {}, []
    for entry in asked:
        name = getattr(entry, named.attribute)
        if named.removable and name.startswith(REMOVED):
            key = named.clean(name.removeprefix(REMOVED))
            removed[key] = type(entry)(**{named.attribute: REMOVED + key})
        else:
            copy = type(entry)()
            copy.CopyFrom(entry)
            setattr(copy, named.attribute, named.clean(name))
            entries.append(copy)
    return removed, entries


def _set_entry(into: Any, key: str, value: Any) -> None:
    if hasattr(value, "DESCRIPTOR"):
        into[key].CopyFrom(value)
    else:
        into[key] = value
