"""The nft rules: a fixed number, and one short chain for each number of endpoints that some Service has. Pure.

    frontends   address, protocol, port -> list, target   the endpoints behind it, and how one of them is chosen
    targets     target -> chain                           follows from the number of endpoints and the policy
    local_ids   address, protocol, port -> list           endpoints of this node (externalTrafficPolicy: Local)
    endpoints   list, index -> address, port
    refused     address, protocol, port                   nobody is behind it
    dropped     address, protocol, port                   nobody on this node is

A node port is a frontend with the address 0. So a connection costs four lookups, one of them in the small map of
targets, however many Services there are; and an endpoint that comes or goes changes one element of `endpoints` and one
of `frontends`. The frontends are not a map of verdicts themselves: the kernel walks through all elements of such
a map whenever one changes: with 10 000 Services that takes 17 ms instead of 0.1.

    affinity    list, client -> address, port            for a time, put there by the rules
    members     list, address, port                      whether what `affinity` says is still true

The first packet of a connection only: the rest of it follows from connection tracking. The rules of a chain load a key,
look its list up, and put a random index behind it. The registers of the answers are loaded with zeros before, because
the `nft` program cannot show lookups that feed lookups, and would end in an assertion.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from podwire.linux.nft import expressions as do
from podwire.linux.nft.tables import (
    ADDRESS4,
    ADDRESS4_AND_PORT,
    ADDRESS6,
    ADDRESS6_AND_PORT,
    FORWARD,
    INPUT,
    NUMBER,
    OUTPUT,
    PORT,
    POSTROUTING,
    PREROUTING,
    PROTOCOL,
    TWO_NUMBERS,
    VERDICT,
    Chain,
    Field,
    Set,
    Table,
)
from podwire.proxy.values import Network

TABLE = "podwire-proxy"
VERSIONS = (4, 6)
MASQUERADE = 1 << 14
"""The bit of a packet's mark that has it masqueraded, the same as kube-proxy's."""
MOST_CLIENTS = 1 << 18
"""Clients that are remembered for session affinity, of each family."""
TARGETS = "targets"
STATIC = ("frontends", "local_ids", "endpoints", "refused", "dropped", "cluster_ips", "hairpin", "members")
RANGES = ("limited", "sources")
REJECT = "goto refused"

_DNAT, _BEFORE_DNAT, _FILTER = -101, -110, 0
"""Before -100, which the host ports of CNI plugins have: of chains with one priority, those that were made last come
first. A node port wins over a host port of the same number, as with kube-proxy's iptables rules."""
_SNAT = 95
"""Before the chains of CNI plugins, and before that of `podwire up` which exempts pods from masquerading."""
_LIST, _ID, _BEHIND, _KEY = 0, 1, 3, 8
"""Registers: keys that begin with a list have a field of zeros first, then its id, then an index or an address."""
_LENGTH = {4: 4, 6: 16}
_SOURCE, _DESTINATION = {4: 12, 6: 8}, {4: 16, 6: 24}
_LOOPBACK = {4: (1, bytes((127,))), 6: (16, bytes(15) + b"\1")}
_NEW = do.NEW.to_bytes(4, "little")
_CHAIN = re.compile(r"([a-z-]+)([46])-(\d+)(?:-(\d+))?(?:-for-(\d+))?", re.ASCII)

Rule = Sequence[bytes]


class Settings(NamedTuple):
    """Settings of a node."""

    pods: tuple[Network, ...] = ()
    """Addresses of pods: who else uses a cluster address is masqueraded. Empty: unknown, nobody is."""
    bridged: bool = False
    """Pods reach each other on a bridge that the rules do not see, so that connections among them are masqueraded."""

    def of(self, version: int) -> list[Network]:
        return [network for network in self.pods if network.version == version]


class Target(NamedTuple):
    """A chain: how the packets of a frontend reach one of so many endpoints."""

    kind: str
    """cluster, external, node, external-local, node-local, pick, node-pick."""
    version: int
    endpoints: int
    local: int = 0
    """Endpoints on this node, of the kinds with `local`."""
    affinity: int = 0

    @property
    def name(self) -> str:
        local = f"-{self.local}" if self.kind.endswith("local") else ""
        return f"{self.kind}{self.version}-{self.endpoints}{local}{f'-for-{self.affinity}' if self.affinity else ''}"

    @property
    def verdict(self) -> str:
        return f"goto {self.name}"

    @property
    def number(self) -> bytes:
        """Returns a number of 64 bits by which frontends refer to it."""
        return _number(self.name)


@lru_cache(maxsize=4096)
def _number(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()


def target_of(name: str) -> Target | None:
    """Returns the target of a chain by its name; None for a chain that is always there."""
    match = _CHAIN.fullmatch(name)
    if match is None:
        return None
    kind, version, count, local, affinity = match.groups()
    return Target(kind, int(version), int(count), int(local or 0), int(affinity or 0))


def chains_of(target: Target, settings: Settings) -> list[Chain]:
    """Returns the chain of a target, after those that it leads to."""
    kind, version, count, local, affinity = target
    at_node = kind.startswith("node")
    chosen = _choice(version, "frontends", count, affinity, at_node=at_node)
    masqueraded = [*do.set_mark(MASQUERADE, on=True)]
    if kind == "cluster":
        outside = [[do.verdict(f"jump outside{version}")]] if settings.of(version) else []
        return [_chain(target.name, [*outside, *chosen])]
    if not kind.endswith("local"):
        marked = [] if kind.endswith("pick") else [masqueraded]
        return [_chain(target.name, [*marked, *chosen])]
    pick = Target("node-pick" if at_node else "pick", version, count, 0, affinity)
    rules: list[Rule] = [[*do.within("source", pods), do.verdict(pick.verdict)] for pods in settings.of(version)]
    own = [do.source_type(), do.equals(do.LOCAL.to_bytes(4, "little"))]
    rules += [[*own, *masqueraded, do.verdict(pick.verdict)]]
    rules += _choice(version, "local_ids", local, affinity, at_node=at_node) if local else []
    return [*chains_of(pick, settings), _chain(target.name, rules)]


def _choice(version: int, ids: str, count: int, affinity: int, *, at_node: bool) -> list[Rule]:
    """Returns the rules that send a connection to one of the endpoints of its list."""
    words = _LENGTH[version] // 4
    chosen, client = _KEY + 1, _BEHIND + 1
    id_ = do.mapped(f"{ids}{version}", _KEY, _ID)
    list_ = [*_key(version, at_node=at_node), do.value(bytes(16), _LIST), id_, do.value(bytes(4), _BEHIND)]
    picked = [do.random_number(count, _BEHIND), do.mapped(f"endpoints{version}", _LIST, chosen)]
    sent = do.translated(version, chosen, chosen + words)
    if not affinity:
        return [[*list_, *picked, sent]]
    clients, source = f"affinity{version}", do.network(_SOURCE[version], _LENGTH[version], client)
    zeros = [do.value(bytes(16), _KEY), *([do.value(bytes(4), 12), do.value(bytes(2), 13)] if version == 6 else [])]
    kept = do.remembered(clients, _LIST, _KEY, affinity * 1000)
    port = do.value(bytes(2), client + words)
    is_member = [port, do.mapped(clients, _LIST, _BEHIND), do.found(f"members{version}", _LIST)]
    again = [do.value(bytes(_LENGTH[version]), chosen), do.mapped(clients, _LIST, _KEY)]
    return [
        [*list_, source, *is_member, source, *zeros, kept, *again, sent],
        [*list_, source, *zeros, do.forgotten(clients, _LIST, _KEY)],  # what it says is no longer true
        [*list_, *zeros, *picked, do.value(bytes(4), _BEHIND), source, kept, sent],
        [*list_, *picked, sent],  # no more clients can be remembered
    ]


def program(settings: Settings) -> Table:
    """The table with all that does not depend on Services."""
    chains = [
        Chain("prerouting", _rules([[do.verdict("jump services")]]), PREROUTING, _DNAT, "nat"),
        Chain("output", _rules([[do.verdict("jump services")]]), OUTPUT, _DNAT, "nat"),
        Chain("postrouting", _rules(_postrouting(settings)), POSTROUTING, _SNAT, "nat"),
        Chain("sources-prerouting", _rules([_if_new("firewall")]), PREROUTING, _BEFORE_DNAT),
        Chain("sources-output", _rules([_if_new("firewall")]), OUTPUT, _BEFORE_DNAT),
        Chain("filter-input", _rules([_if_new("unserved"), _if_new("unserved-node")]), INPUT, _FILTER),
        Chain("filter-forward", _rules([_if_new("unserved"), _if_new("unknown")]), FORWARD, _FILTER),
        Chain("filter-output", _rules([_if_new("unserved"), _if_new("unknown")]), OUTPUT, _FILTER),
        _chain("services", [rule for version in VERSIONS for rule in _services(version)]),
        _chain("unserved", [rule for version in VERSIONS for rule in _unserved(version, at_node=False)]),
        _chain("unserved-node", [rule for version in VERSIONS for rule in _unserved(version, at_node=True)]),
        _chain("unknown", [_unknown(version) for version in VERSIONS]),
        _chain("firewall", [_firewall(version) for version in VERSIONS]),
        _chain("refused", [[do.meta("l4proto"), do.equals(bytes((do.TCP,))), do.reset()], [do.reject()]]),
        *(_outside(version, settings) for version in VERSIONS),
    ]
    # jumps lead to chains that exist already: those of hooks come last
    return Table(TABLE, sorted(chains, key=lambda chain: chain.hook is not None), _sets())


def _sets() -> list[Set]:
    sets = [Set(TARGETS, (NUMBER, NUMBER), VERDICT)]
    for version, field, target in ((4, ADDRESS4, ADDRESS4_AND_PORT), (6, ADDRESS6, ADDRESS6_AND_PORT)):
        known = ADDRESS6 if version == 4 else Field(24, ADDRESS6.type << 12 | NUMBER.type << 6 | PORT.type)
        frontend = (field, PROTOCOL, PORT)
        sets += [
            Set(f"frontends{version}", frontend, ADDRESS6),  # list and target, shown as an address
            Set(f"local_ids{version}", frontend, TWO_NUMBERS),
            Set(f"endpoints{version}", (NUMBER, NUMBER, NUMBER, NUMBER), target),
            Set(f"refused{version}", frontend),
            Set(f"dropped{version}", frontend),
            Set(f"cluster_ips{version}", (field,)),
            Set(f"hairpin{version}", (field, field)),
            # A list is shown as an address, and the answer of `affinity` behind a field of zeros, too.
            Set(f"members{version}", (ADDRESS6, field, PORT)),
            Set(f"affinity{version}", (ADDRESS6, field), known, remembers=MOST_CLIENTS),
            Set(f"limited{version}", frontend),
            Set(f"sources{version}", (*frontend, field), ranges=True),
        ]
    return sets


def _rules(rules: Iterable[Rule]) -> tuple[bytes, ...]:
    return tuple(do.rule(*rule) for rule in rules)


def _chain(name: str, rules: Iterable[Rule]) -> Chain:
    return Chain(name, _rules(rules))


def _if_new(chain: str) -> Rule:
    return [do.conntrack("state"), do.masked(_NEW), do.differs(bytes(4)), do.verdict(f"jump {chain}")]


def _key(version: int, register: int = _KEY, *, at_node: bool = False) -> list[bytes]:
    """Loads the key of a frontend: any address of the node is 0."""
    length = _LENGTH[version]
    there = register + length // 4
    address = do.value(bytes(length), register) if at_node else do.network(_DESTINATION[version], length, register)
    return [address, do.meta("l4proto", there), do.transport(2, 2, there + 1)]


def _not_loopback(version: int) -> Rule:
    length, first = _LOOPBACK[version]
    return [do.network(_DESTINATION[version], length), do.differs(first)]


def _services(version: int) -> list[Rule]:
    zeros = [do.value(bytes(4), register) for register in (_BEHIND, _BEHIND + 1)]
    frontends = [*zeros, do.mapped(f"frontends{version}", _KEY, _ID), do.dispatched(TARGETS, _BEHIND)]
    local = [do.destination_type(), do.equals(do.LOCAL.to_bytes(4, "little"))]
    return [
        [*do.family(version), *_key(version), *frontends],
        [*do.family(version), *_not_loopback(version), *local, *_key(version, at_node=True), *frontends],
    ]


def _unserved(version: int, *, at_node: bool) -> list[Rule]:
    loopback = _not_loopback(version) if at_node else []
    key = [*do.family(version), *loopback, *_key(version, at_node=at_node)]
    verdicts = (("refused", REJECT), ("dropped", "drop"))
    return [[*key, do.found(f"{name}{version}", _KEY), do.verdict(verdict)] for name, verdict in verdicts]


def _unknown(version: int) -> Rule:
    """A cluster address with a port that the Service does not have."""
    to = [do.network(_DESTINATION[version], _LENGTH[version]), do.found(f"cluster_ips{version}")]
    return [*do.family(version), *to, do.verdict(REJECT)]


def _firewall(version: int) -> Rule:
    """An address of a load balancer that not everybody may use."""
    source = _LENGTH[version] // 4 + 2
    limited = [*_key(version, 0), do.found(f"limited{version}", 0)]
    allowed = [do.network(_SOURCE[version], _LENGTH[version], source), do.missing(f"sources{version}", 0)]
    return [*do.family(version), *limited, *allowed, do.verdict("drop")]


def _outside(version: int, settings: Settings) -> Chain:
    """Marks packets that do not come from pods."""
    inside: list[Rule] = [[*do.within("source", pods), do.verdict("return")] for pods in settings.of(version)]
    return _chain(f"outside{version}", [*inside, [*do.set_mark(MASQUERADE, on=True)]])


def _postrouting(settings: Settings) -> list[Rule]:
    marked = [do.meta("mark"), do.masked(MASQUERADE.to_bytes(4, "little")), do.differs(bytes(4))]
    masqueraded = do.masquerade(random_ports=True)
    translated = [do.conntrack("status"), do.masked(do.DNAT.to_bytes(4, "little")), do.differs(bytes(4))]
    rules: list[Rule] = [[*marked, *do.set_mark(MASQUERADE, on=False), masqueraded]]
    for version in VERSIONS:
        length = _LENGTH[version]
        source = do.network(_SOURCE[version], length, _KEY)
        both = [source, do.network(_DESTINATION[version], length, _KEY + length // 4)]
        hairpin = [*both, do.found(f"hairpin{version}", _KEY)]
        rules.append([*do.family(version), *translated, *hairpin, masqueraded])
        if settings.bridged:
            rules += [
                [*translated, *do.within("source", pods), *do.within("destination", pods), masqueraded]
                for pods in settings.of(version)
            ]
    return rules
