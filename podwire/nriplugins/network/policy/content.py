"""The contents of the kernel's sets and maps for the pods of this node, updated incrementally. Pure.

| set or map | key | says |
|---|---|---|
| `identity4`, `identity6` | address | who has it: the numbers of namespace and identity |
| `ingress4`, …, `egress6` | address of a local pod | its class in that direction; only isolated pods are there |
| `allowed` | 0 . class . who . protocol . port | may; who, protocol and port 0 are any |
| `segments` | protocol . ports | the number of that part of the ports: ranges that overlap are rows of parts |
| `ranged` | 0 . class . who . segment | may |
| `blocks4`, `blocks6` | 0 . class . addresses . protocols . ports | may; protocol and port 0 are any |
| `self4`, `self6` | address . address | a pod, which may always reach itself |
| `verdicts4`, `verdicts6` | address . verdict | counts |
| `links` | link | where frames for many must not pass, because an isolated pod is there |
| `routed` | link | the node's end of a pod that is isolated for egress: what comes by it is that pod's |
| `sources4`, `sources6` | link . address | and has one of its addresses, or is dropped |

`who` is an identity, a namespace, or 1 for every pod. All that a class with admin policies allows is in `blocks4` and
`blocks6` (`ordered.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from podwire.linux.nft import keys
from podwire.linux.nft.values import Element
from podwire.linux.values import IP
from podwire.nriplugins.network.policy.admin_policies import AdminPolicy
from podwire.nriplugins.network.policy.classes import Class, ClassKey, class_key
from podwire.nriplugins.network.policy.elements import (
    NUMBER,
    PARTY,
    TWO_NUMBERS,
    boxes,
    key_of,
    segment,
    single_ports,
    within,
)
from podwire.nriplugins.network.policy.identities import ANY_POD, ANYONE, Identity, number_of
from podwire.nriplugins.network.policy.model import Model
from podwire.nriplugins.network.policy.ordered import OrderedClass
from podwire.nriplugins.network.policy.policies import DIRECTIONS, EGRESS, INGRESS, Key, Policy
from podwire.nriplugins.network.policy.spans import NOTHING, Span, Spans, partition
from podwire.nriplugins.network.policy.values import Attachment, LocalPod

ALLOWED, SEGMENTS, RANGED, LINKS, ROUTED = "allowed", "segments", "ranged", "links", "routed"
VERDICTS = {(INGRESS, True): 1, (INGRESS, False): 2, (EGRESS, True): 3, (EGRESS, False): 4}
"""Direction and whether it was allowed, in the keys of counters."""
_BY_FAMILY = ("identity", "ingress", "egress", "blocks", "self", "verdicts", "sources")
SETS = (
    *(f"{name}{version}" for name in _BY_FAMILY for version in "46"),
    ALLOWED,
    SEGMENTS,
    RANGED,
    LINKS,
    ROUTED,
)

Sets = Mapping[str, Mapping[bytes, Element]]
"""Elements by set, and by the bytes of their keys and ends."""


@dataclass(frozen=True, slots=True)
class DesiredContent:
    """The requested content: not a copy, so apply it before the model changes again."""

    sets: Sets
    since: int
    """The version from which on `touched` tells all changes."""
    version: int
    touched: Mapping[str, frozenset[bytes]]


class Content:
    """For the pods of one namespace: the node's, or a single pod's (`everyone` False: only relevant peers)."""

    def __init__(self, model: Model, *, everyone: bool = True) -> None:
        self._model, self._everyone = model, everyone
        self._locals: dict[str, LocalPod] = {}
        self._sets: dict[str, dict[bytes, Element]] = {name: {} for name in SETS}
        self._touched: dict[str, set[bytes]] = {}
        self._version = 0
        self._classes: dict[ClassKey, Class] = {}
        self._numbers: set[int] = set()
        self._of_pod: dict[str, dict[str, Class]] = {}
        self._shown: dict[str, tuple[tuple[IP, ...], list[tuple[str, bytes]]]] = {}
        self._groups: dict[Class, dict[int, list[tuple[str, bytes]]]] = {}
        self._blocks: dict[Class, list[tuple[str, bytes]]] = {}
        self._segments: dict[Span, int] = {}
        self._ranges: Counter[Span] = Counter()
        self._ranged: dict[tuple[Class, int], tuple[list[Span], list[tuple[str, bytes]]]] = {}
        self._unsettled: set[tuple[Class, int]] = set()
        self._pods: set[str] = set()
        self._identities: set[int] = set()
        self._spaces: set[int] = set()
        self._addresses: set[IP] = set(model.addresses()) if everyone else set()
        self._policies: set[tuple[str, str]] = set()
        self._admin_policies: set[tuple[str, str]] = set()
        self._nodes_changed = False
        model.listen(self)

    def put(self, pod: LocalPod) -> None:
        self._locals[pod.uid] = pod
        self._pods.add(pod.uid)

    def remove(self, uid: str) -> None:
        self._locals.pop(uid, None)
        self._pods.add(uid)

    @property
    def locals(self) -> Mapping[str, LocalPod]:
        return self._locals

    def isolated(self, uid: str) -> bool:
        """The content when it was read last."""
        return bool(self._of_pod.get(uid))

    # What the model tells.

    def pod_changed(self, uid: str) -> None:
        if uid in self._locals:
            self._pods.add(uid)

    def identity_changed(self, identity: Identity) -> None:
        self._identities.add(identity.number)

    def space_changed(self, number: int) -> None:
        self._spaces.add(number)

    def address_changed(self, address: IP) -> None:
        self._addresses.add(address)

    def policies_changed(self, namespace: str, policies: Iterable[Policy]) -> None:
        self._policies |= {policy.key for policy in policies}
        for uid in self._locals:
            pod = self._model.pods.get(uid)
            if (
                pod is not None
                and pod.namespace == namespace
                and any(policy.pods.matches(pod.labels) for policy in policies)
            ):
                self._pods.add(uid)

    def admin_policies_changed(self, policies: Iterable[AdminPolicy]) -> None:
        self._admin_policies |= {policy.key for policy in policies}
        self._pods |= self._locals.keys()

    def nodes_changed(self) -> None:
        self._nodes_changed = True

    # What follows.

    def desired(self) -> DesiredContent:
        """Computes all changes."""
        is_relabelled = bool(self._spaces or self._nodes_changed)
        is_rearranged = bool(self._addresses) or is_relabelled
        self._settle_classes()
        self._settle_pods()
        self._settle_identities()
        self._settle_spaces()
        self._settle_ranges()
        self._settle_addresses()
        if is_rearranged:
            for class_ in self._classes.values():
                if class_.by_address:
                    if is_relabelled:
                        class_.forget()
                    self._block(class_)
        self._nodes_changed = False
        touched = {name: frozenset(touched_keys) for name, touched_keys in self._touched.items()}
        since, self._touched = self._version, {}
        self._version += 1
        return DesiredContent(self._sets, since, self._version, touched)

    def _settle_classes(self) -> None:
        """Recomputes classes of changed policies; known ones keep their number, so that no pod changes its class."""
        for key, old in [*self._classes.items()]:
            direction, policies, _, admin_policies = key
            if self._policies.isdisjoint(policies) and self._admin_policies.isdisjoint(admin_policies):
                continue
            self._empty(old)
            if _exist(self._model.policies, policies, direction) and _exist(
                self._model.admin_policies, admin_policies, direction
            ):
                new = self._classes[key] = self._made(key, old.number)
                new.users = old.users
                self._fill(new)
                for uid in new.users:
                    self._of_pod[uid][direction] = new
            else:
                self._pods |= old.users
        self._policies.clear()
        self._admin_policies.clear()

    def _settle_pods(self) -> None:
        freed = {address for uid in self._pods for address in self._hide(uid)}
        # Another pod whose status has one of these addresses has it from now on.
        self._pods |= {uid for uid, local in self._locals.items() if not freed.isdisjoint(local.ips)}
        for uid in [*(local for local in self._locals if local in self._pods), *(self._pods - self._locals.keys())]:
            self._hide(uid)
            mine = self._classes_of(uid)
            before = self._of_pod.pop(uid, {})
            for class_ in mine.values():
                class_.users.add(uid)
            for direction, class_ in before.items():
                if mine.get(direction) is not class_:
                    class_.users.discard(uid)
                    self._drop_unused(class_)
            if mine:
                self._of_pod[uid] = mine
            if uid in self._locals:
                self._show(self._locals[uid], mine)
        if self._pods:
            self._settle_links()
        self._pods.clear()

    def _classes_of(self, uid: str) -> dict[str, Class]:
        pod = self._model.pods.get(uid)
        if uid not in self._locals or pod is None:
            return {}
        keys_by_direction = {direction: class_key(self._model, pod, direction) for direction in DIRECTIONS}
        return {direction: self._class(key) for direction, key in keys_by_direction.items() if key is not None}

    def _settle_links(self) -> None:
        there = [local for uid, local in self._locals.items() if uid in self._of_pod and local.link]
        wanted = {keys.interface(local.link) for local in there if local.attachment is not Attachment.ROUTED}
        for key in self._sets[LINKS].keys() - wanted:
            self._unset(LINKS, key)
        for key in wanted:
            self._set(LINKS, Element(key))

    def _class(self, key: ClassKey) -> Class:
        class_ = self._classes.get(key)
        if class_ is None:
            number = number_of((key[0], *map(sorted, key[1:])), self._numbers.__contains__)
            self._numbers.add(number)
            class_ = self._classes[key] = self._made(key, number)
            self._fill(class_)
        return class_

    def _made(self, key: ClassKey, number: int) -> Class:
        policies = [self._model.policies[policy] for policy in sorted(key[1])]
        if not key[3]:
            return Class(key, number, policies)
        return OrderedClass(key, number, policies, [self._model.admin_policies[policy] for policy in key[3]])

    def _drop_unused(self, class_: Class) -> None:
        if not class_.users and self._classes.get(class_.key) is class_:
            del self._classes[class_.key]
            self._numbers.discard(class_.number)
            self._empty(class_)

    def _fill(self, class_: Class) -> None:
        self._group(class_, ANYONE, class_.anyone())
        for identity in {matched for peer in class_.peers for matched in self._model.identities.matched(peer)}:
            self._group(class_, identity.number, class_.allowed(identity))
        self._group(class_, ANY_POD, class_.allowed_to_all())
        for number in class_.spaces(self._model):
            self._group(class_, number, class_.allowed_to(number, self._model))
        self._block(class_)

    def _empty(self, class_: Class) -> None:
        for number in [*self._groups.get(class_, ())]:
            self._group(class_, number, NOTHING)
        self._groups.pop(class_, None)
        for name, key in self._blocks.pop(class_, ()):
            self._unset(name, key)

    def _group(self, class_: Class, number: int, spans: Spans) -> None:
        """The elements of one identity in one class."""
        groups = self._groups.setdefault(class_, {})
        if not self._everyone and bool(spans) != (number in groups):
            self._addresses |= self._model.addresses_behind(number)
        for name, key in groups.pop(number, ()):
            self._unset(name, key)
        if spans:
            groups[number] = [self._set(ALLOWED, element) for element in single_ports(class_.number, number, spans)]
        self._range(class_, number, [span for span in spans if span.first != span.last])

    def _range(self, class_: Class, number: int, spans: list[Span]) -> None:
        """The ranges of a group: computed when all are known, because they may overlap."""
        before, shown = self._ranged.pop((class_, number), ([], []))
        for name, key in shown:
            self._unset(name, key)
        for element in before:
            self._ranges[element] -= 1
            if not self._ranges[element]:
                del self._ranges[element]
        if spans:
            self._ranges.update(spans)
            self._ranged[class_, number] = spans, []
            self._unsettled.add((class_, number))

    def _settle_ranges(self) -> None:
        parts = partition(self._ranges)
        if parts != [*self._segments]:
            taken: set[int] = set()
            self._segments = {}
            for part in parts:
                self._segments[part] = number_of(tuple(part), taken.__contains__)
                taken.add(self._segments[part])
            self._show_segments()
            self._unsettled = set(self._ranged)
        for class_, number in self._unsettled:
            if (class_, number) in self._ranged:
                spans, shown = self._ranged[class_, number]
                for name, key in shown:
                    self._unset(name, key)
                inside = [number for range_, number in self._segments.items() if within(range_, spans)]
                head = PARTY.pack(0, class_.number, number)
                shown[:] = [self._set(RANGED, Element(head + NUMBER.pack(number))) for number in inside]
        self._unsettled.clear()

    def _show_segments(self) -> None:
        wanted = {key_of(element): element for element in map(segment, self._segments.items())}
        for key in [*self._sets[SEGMENTS].keys() - wanted.keys()]:
            self._unset(SEGMENTS, key)
        for element in wanted.values():
            self._set(SEGMENTS, element)

    def _block(self, class_: Class) -> None:
        for name, key in self._blocks.pop(class_, ()):
            self._unset(name, key)
        shown = []
        for version in (4, 6):
            for range_, areas in class_.areas(self._model, version):
                shown += [
                    self._set(f"blocks{version}", element) for element in boxes(class_.number, version, range_, areas)
                ]
        self._blocks[class_] = shown

    def _settle_identities(self) -> None:
        for number in self._identities:
            identity = self._model.identities.by_number(number)
            for class_ in self._classes.values():
                if identity is not None and not class_.peers.keys().isdisjoint(identity.peers):
                    self._group(class_, number, class_.allowed(identity))
                elif number in self._groups[class_]:
                    self._group(class_, number, NOTHING)
        self._identities.clear()

    def _settle_spaces(self) -> None:
        for number in self._spaces:
            for class_ in self._classes.values():
                if class_.wide:
                    self._group(class_, number, class_.allowed_to(number, self._model))
        self._spaces.clear()

    def _settle_addresses(self) -> None:
        matter = {number for groups in self._groups.values() for number in groups}
        everyone = self._everyone or ANY_POD in matter
        for address in self._addresses:
            identity, name = self._model.identity_at(address), f"identity{address.version}"
            if identity is not None and (everyone or self._matters(identity, matter)):
                space = self._model.identities.space(identity.namespace)
                self._set(name, Element(address.packed, TWO_NUMBERS.pack(space, identity.number)))
            else:
                self._unset(name, address.packed)
        self._addresses.clear()

    def _matters(self, identity: Identity, matter: set[int]) -> bool:
        return identity.number in matter or self._model.identities.space(identity.namespace) in matter

    def _show(self, local: LocalPod, mine: Mapping[str, Class]) -> None:
        shown = []
        for one, other in product(local.ips, repeat=2):
            if one.version == other.version:
                shown.append(self._set(f"self{one.version}", Element(keys.joined(one.packed, other.packed))))
        for address, (direction, class_) in product(local.ips, mine.items()):
            own = Element(address.packed, NUMBER.pack(class_.number))
            shown.append(self._set(f"{direction.lower()}{address.version}", own))
            for allowed in (True, False):
                count = Element(address.packed + NUMBER.pack(VERDICTS[direction, allowed]))
                shown.append(self._set(f"verdicts{address.version}", count))
        if EGRESS in mine and local.link and local.attachment is Attachment.ROUTED:
            shown += self._bound(local)
        self._shown[local.uid] = local.ips, shown

    def _bound(self, local: LocalPod) -> Iterator[tuple[str, bytes]]:
        """A pod that is isolated for egress cannot send from addresses that it does not have."""
        link = keys.interface(local.link)
        yield self._set(ROUTED, Element(link))
        for ip in local.ips:
            yield self._set(f"sources{ip.version}", Element(link + ip.packed))

    def _hide(self, uid: str) -> tuple[IP, ...]:
        """Returns the addresses that it had."""
        ips, shown = self._shown.pop(uid, ((), []))
        for name, key in shown:
            self._unset(name, key)
        return ips

    def _set(self, name: str, element: Element) -> tuple[str, bytes]:
        key = key_of(element)
        if self._sets[name].get(key) != element:
            self._sets[name][key] = element
            self._touched.setdefault(name, set()).add(key)
        return name, key

    def _unset(self, name: str, key: bytes) -> None:
        if self._sets[name].pop(key, None) is not None:
            self._touched.setdefault(name, set()).add(key)


def _exist(known: Mapping[Key, Policy] | Mapping[Key, AdminPolicy], keys_: Iterable[Key], direction: str) -> bool:
    """Whether all these policies exist and have rules for a direction."""
    return all(key in known and direction in known[key].rules for key in keys_)
