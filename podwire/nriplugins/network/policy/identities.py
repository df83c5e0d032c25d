"""Identities: pods that no policy can tell apart have one number, and peers know the numbers that they match. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s

from podwire.nriplugins.network.policy.policies import Peer
from podwire.nriplugins.network.policy.values import NAME_LABEL, NamedPort, Pod
from podwire.objects.selectors import LabelSelector

ANYONE, ANY_POD = 0, 1
"""Reserved numbers."""
_BITS = 0x7FFFFFFF

Who = tuple[str, frozenset[tuple[str, str]], frozenset[tuple[NamedPort, int]]]
"""Namespace, labels, and the named ports that policies use."""
_Anchor = tuple[str, str] | None


def number_of(name: object, taken: Callable[[int], bool]) -> int:
    """A number for a value: the same after a restart, unless two values collide."""
    number = int.from_bytes(blake2s(repr(name).encode(), digest_size=4).digest(), "little") & _BITS
    while number in (ANYONE, ANY_POD) or taken(number):
        number = (number + 1) & _BITS
    return number


@dataclass(slots=True, eq=False)
class Identity:
    number: int
    namespace: str
    labels: Mapping[str, str]
    ports: Mapping[NamedPort, int]
    uids: set[str] = field(default_factory=set)
    peers: set[Peer] = field(default_factory=set)
    """The peers that match it."""


class Identities:
    """All identities, and all peers of policies; which peer matches which identity is kept up to date.

    A peer is looked for where it can be: in its namespace, and there by one label that it demands.
    """

    def __init__(self) -> None:
        self._all: dict[Who, Identity] = {}
        self._numbers: dict[int, Identity] = {}
        self._of_pod: dict[str, Who] = {}
        self._in: dict[str, set[Identity]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._spaces: dict[str, int] = {}
        self._found: dict[Peer, tuple[int, ...]] = {}
        self._peers: dict[Peer, int] = {}
        self._matched: dict[Peer, set[Identity]] = {}
        self._fixed: dict[str, dict[_Anchor, set[Peer]]] = {}
        self._selecting: dict[LabelSelector, dict[_Anchor, set[Peer]]] = {}

    # Pods.

    def put(self, pod: Pod, wanted_ports: Iterable[NamedPort]) -> tuple[Identity, Identity | None]:
        """Returns the pod's identity, and the previous one if it changed; an identity without pods is dropped."""
        ports = {name: pod.ports[name] for name in wanted_ports if name in pod.ports} if pod.ports else {}
        who = (pod.namespace, frozenset(pod.labels.items()), frozenset(ports.items()))
        before = self._of_pod.get(pod.uid)
        if before == who:
            return self._all[who], None
        left = self.remove(pod.uid)
        identity = self._all.get(who) or self._new(who, pod, ports)
        identity.uids.add(pod.uid)
        self._of_pod[pod.uid] = who
        return identity, left

    def _new(self, who: Who, pod: Pod, ports: Mapping[NamedPort, int]) -> Identity:
        number = number_of((who[0], sorted(who[1]), sorted(who[2])), self._taken)
        identity = Identity(number, pod.namespace, dict(pod.labels), ports)
        self._all[who] = self._numbers[number] = identity
        self._in.setdefault(pod.namespace, set()).add(identity)
        self._match(identity)
        return identity

    def remove(self, uid: str) -> Identity | None:
        who = self._of_pod.pop(uid, None)
        if who is None:
            return None
        identity = self._all[who]
        identity.uids.discard(uid)
        if not identity.uids:
            del self._all[who], self._numbers[identity.number]
            self._in[identity.namespace].discard(identity)
            for peer in identity.peers:
                self._matched[peer].discard(identity)
        return identity

    def of(self, uid: str) -> Identity | None:
        who = self._of_pod.get(uid)
        return None if who is None else self._all[who]

    def by_number(self, number: int) -> Identity | None:
        return self._numbers.get(number)

    def _taken(self, number: int) -> bool:
        return number in self._numbers or number in self._spaces.values()

    # Namespaces.

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace; an unknown one has the label that every namespace has."""
        return self._namespaces.get(namespace) or {NAME_LABEL: namespace}

    def space(self, name: str) -> int:
        """The number of a namespace, which its pods have besides their own; it is kept once used."""
        number = self._spaces.get(name)
        if number is None:
            number = self._spaces[name] = number_of(name, self._taken)
            self._found.clear()
        return number

    def inside(self, space: int) -> set[Identity]:
        """The identities of a namespace, by its number."""
        name = next((name for name, number in self._spaces.items() if number == space), "")
        return self._in.get(name, set())

    def spaces(self, peer: Peer) -> tuple[int, ...]:
        """The numbers of the namespaces that a peer matches."""
        if peer.namespace is not None:
            return (self.space(peer.namespace),)
        if peer not in self._found:
            meant = peer.namespaces.matches
            self._found[peer] = tuple(number for name, number in self._spaces.items() if meant(self.labels_of(name)))
        return self._found[peer]

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> list[Identity]:
        """Labels None: it was deleted. Returns the identities that other peers match from now on."""
        before = self.labels_of(name)
        self._namespaces.pop(name, None)
        if labels is not None:
            self._namespaces[name] = {NAME_LABEL: name, **labels}
        if before == self.labels_of(name):
            return []
        self._found.clear()
        return [identity for identity in self._in.get(name, ()) if self._match(identity)]

    # Peers.

    def add_peer(self, peer: Peer) -> None:
        """Each rule of a policy adds its peer once."""
        self._peers[peer] = self._peers.get(peer, 0) + 1
        if self._peers[peer] > 1:
            return
        self._bucket(peer).add(peer)
        spaces = [peer.namespace] if peer.namespace is not None else [*self._in]
        matched = self._matched[peer] = set()
        for space in spaces:
            if peer.namespace is None and not peer.namespaces.matches(self.labels_of(space)):
                continue
            for identity in self._in.get(space, ()):
                if peer.pods.matches(identity.labels):
                    matched.add(identity)
                    identity.peers.add(peer)

    def drop_peer(self, peer: Peer) -> None:
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]
            self._bucket(peer).discard(peer)
            for identity in self._matched.pop(peer):
                identity.peers.discard(peer)

    def matched(self, peer: Peer) -> set[Identity]:
        return self._matched.get(peer, set())

    def _bucket(self, peer: Peer) -> set[Peer]:
        if peer.namespace is not None:
            shelf = self._fixed.setdefault(peer.namespace, {})
        else:
            shelf = self._selecting.setdefault(peer.namespaces, {})
        return shelf.setdefault(anchor(peer.pods), set())

    def _match(self, identity: Identity) -> bool:
        """Matches it with all peers again; returns whether the result changed."""
        labels, space = identity.labels, self.labels_of(identity.namespace)
        shelves = [self._fixed.get(identity.namespace, {})]
        shelves += [shelf for selector, shelf in self._selecting.items() if shelf and selector.matches(space)]
        near = [bucket for shelf in shelves for label in (None, *labels.items()) if (bucket := shelf.get(label))]
        matching = {peer for bucket in near for peer in bucket if peer.pods.matches(labels)}
        if matching == identity.peers:
            return False
        for peer in identity.peers - matching:
            self._matched[peer].discard(identity)
        for peer in matching - identity.peers:
            self._matched[peer].add(identity)
        identity.peers = matching
        return True


def anchor(selector: LabelSelector) -> _Anchor:
    """A label that all selected pods have, if the selector requires one."""
    for requirement in selector.requirements:
        if requirement.operator in ("=", "in") and len(requirement.values) == 1:
            return requirement.key, next(iter(requirement.values))
    return None
