"""Address translation for pods, in the nft table `inet podwire`: constant rules, and maps with elements per pod.

    masquerade4/6   pod address -> chain of its subnet: packets that leave the subnet get the host's address
    ports4/6        protocol and port of any local address -> pod address and port
    ports_at4/6     the same for one local address
    hairpin4/6      pod address -> chain of its subnet: replies to a pod that used a host port return through the host

The comment of an element is its owner tag. The elements of a pod are added in one transaction, and removed in one. Only
packets to an address of this host are redirected. The functions on elements serve any table of ours.

The chains of a subnet are made with its first pod and removed with its last: by netlink, because the `nft` program
takes longer than all the rest of an ADD. The kernel refuses to delete a chain that an element leads to.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from ipaddress import ip_network

from podwire.cniplugins.attachments import Record
from podwire.cniplugins.netfilter import Netfilter, open_netfilter
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.skeleton import Call
from podwire.linux import errors as linux
from podwire.linux.nft import expressions
from podwire.linux.nft.table import TABLE, KernelElements, KernelRuleset
from podwire.linux.nft.tables import Chain
from podwire.linux.nft.values import Change, Element
from podwire.protocols.cni.results import IP
from podwire.protocols.cni.results import decode as decode_result
from podwire.protocols.cni.values import Interface, Network
from podwire.protocols.cni.versions import LATEST

MASQUERADE, HAIRPIN = "masquerade", "hairpin"
MASQUERADE_SETS = ("masquerade4", "masquerade6")
ALL_SOURCES = "all"
PORTS, PORTS_AT = "ports", "ports_at"
_IP = {4: "ip", 6: "ip6"}
_MULTICAST = {4: ("224.0.0.0/4", "255.255.255.255/32"), 6: ("ff00::/8",)}
_ATTEMPTS = 5
"""The chain of a subnet can be removed with its last pod while another pod is added."""

_FAMILY = """
add map inet {table} masquerade{v} {{ type ipv{v}_addr : verdict; }}
add map inet {table} hairpin{v} {{ type ipv{v}_addr : verdict; }}
add map inet {table} ports{v} {{ type inet_proto . inet_service : ipv{v}_addr . inet_service; }}
add map inet {table} ports_at{v} {{ type ipv{v}_addr . inet_proto . inet_service : ipv{v}_addr . inet_service; }}
add rule inet {table} hostports dnat {ip} to {ip} daddr . meta l4proto . th dport map @ports_at{v}
add rule inet {table} hostports meta nfproto ipv{v} dnat {ip} to meta l4proto . th dport map @ports{v}
add rule inet {table} postrouting ct status dnat {ip} daddr vmap @hairpin{v}
add rule inet {table} postrouting {ip} saddr vmap @masquerade{v}
"""

_CHAINS = """
add table inet {table}
add chain inet {table} guard {{ type filter hook prerouting priority raw; policy accept; }}
add chain inet {table} prerouting {{ type nat hook prerouting priority dstnat; policy accept; }}
add chain inet {table} output {{ type nat hook output priority -100; policy accept; }}
add chain inet {table} postrouting {{ type nat hook postrouting priority srcnat; policy accept; }}
add chain inet {table} hostports
flush chain inet {table} guard
flush chain inet {table} prerouting
flush chain inet {table} output
flush chain inet {table} postrouting
flush chain inet {table} hostports
add rule inet {table} guard iifname != "lo" ip daddr 127.0.0.0/8 drop
add rule inet {table} prerouting meta l4proto {{ tcp, udp, sctp }} fib daddr type local jump hostports
add rule inet {table} output meta l4proto {{ tcp, udp, sctp }} fib daddr type local jump hostports
add rule inet {table} postrouting ct status dnat ip saddr 127.0.0.0/8 masquerade
"""
# The chain guard: host ports work on 127.0.0.1, too, for which the bridge must route loopback addresses
# (route_localnet). Packets to such addresses must not come in from outside.


def ruleset(subnets: Iterable[Network], purposes: Sequence[str] = (MASQUERADE, HAIRPIN)) -> str:
    """Returns all rules, with the chains of these subnets; applying it again changes nothing.

    A caller has chains made only for the purposes that it uses: a chain without an element would be a leftover.
    """
    parts = [_CHAINS.format(table=TABLE)]
    parts += [_FAMILY.format(table=TABLE, v=v, ip=ip) for v, ip in _IP.items()]
    parts += [_subnet(subnet, purpose) for subnet in subnets for purpose in purposes]
    return "".join([*parts, _chain(chain(HAIRPIN, None), ["masquerade"])])


def _subnet(subnet: Network, purpose: str) -> str:
    ip = _IP[subnet.version]
    if purpose == HAIRPIN:
        return _chain(chain(HAIRPIN, subnet), [f"{ip} saddr {subnet} masquerade"])
    casts = ", ".join(_MULTICAST[subnet.version])
    inside = [f"{ip} daddr {subnet} return", f"{ip} daddr {{ {casts} }} return", "masquerade"]
    return _chain(chain(MASQUERADE, subnet), inside)


def subnet_chains(elements: Iterable[tuple[str, Element]], subnets: Iterable[Network]) -> list[Chain]:
    """Returns the chains that elements lead to."""
    targets = {_target(element) for _, element in elements}
    chains = []
    for subnet in dict.fromkeys(subnets):
        inside = expressions.rule(*expressions.within("destination", subnet), expressions.verdict("return"))
        casts = [
            expressions.rule(*expressions.within("destination", ip_network(cast)), expressions.verdict("return"))
            for cast in _MULTICAST[subnet.version]
        ]
        outside = expressions.rule(expressions.masquerade())
        again = expressions.rule(*expressions.within("source", subnet), expressions.masquerade())
        chains.append(Chain(chain(MASQUERADE, subnet), (inside, *casts, outside)))
        chains.append(Chain(chain(HAIRPIN, subnet), (again,)))
    return [made for made in chains if made.name in targets]


def _target(element: Element) -> str:
    """Returns the chain that an element leads to; empty if it leads to none."""
    return element.data.removeprefix("jump ") if isinstance(element.data, str) else ""


def _chain(name: str, rules: Sequence[str]) -> str:
    head = f"add chain inet {TABLE} {name}\nflush chain inet {TABLE} {name}\n"
    return head + "".join(f"add rule inet {TABLE} {name} {rule}\n" for rule in rules)


def chain(purpose: str, subnet: Network | None) -> str:
    """Returns the name of a subnet's chain; nft does not allow colons in it."""
    if subnet is None:
        return f"{purpose}-{ALL_SOURCES}"
    base = str(subnet.network_address) if subnet.version == 4 else subnet.network_address.packed.hex()
    return f"{purpose}-{base}-{subnet.prefixlen}"


def jump(purpose: str, interface: Interface, comment: str, *, all_sources: bool = False) -> tuple[str, Element]:
    """Returns the element that applies the rules of its subnet to a pod's address, with the name of its map."""
    target = chain(purpose, None if all_sources else ip_network(interface.network))
    return f"{purpose}{interface.version}", Element(interface.ip.packed, f"jump {target}", comment)


def masquerade(call: Call, record: Record, ips: Iterable[IP]) -> None:
    """Masquerades a pod's addresses."""
    addresses = [ip.address for ip in ips]
    jumps = [jump(MASQUERADE, address, record.comment) for address in addresses]
    subnets = [ip_network(address.network) for address in addresses]
    with open_netfilter(call) as netfilter:
        replace(netfilter.elements, jumps, partial(ruleset, subnets, (MASQUERADE,)), subnets)


def check_masqueraded(netfilter: Netfilter, record: Record, ips: Iterable[IP]) -> None:
    sets = {f"{MASQUERADE}{ip.address.version}" for ip in ips}
    listed = list_tagged(sets, record.owns, netfilter.elements)
    keys = {element.key for elements in listed.values() for element in elements}
    for ip in ips:
        expect(ip.address.ip.packed in keys, f"{ip.address.ip} is not masqueraded")


def forget_connections(netfilter: Netfilter, record: Record) -> None:
    """Deletes conntrack entries of a pod's addresses; before IPAM DEL, while no other pod can have them."""
    if record.result is not None:
        for ip in decode_result(record.result, LATEST).ips:
            netfilter.conntrack.forget(ip.address.ip)


def put(
    table: KernelElements,
    elements: Iterable[tuple[str, Element]],
    rules: Callable[[], str],
    subnets: Iterable[Network] = (),
) -> None:
    """Adds all elements or none, and the rules if they do not exist. Raises ElementExists."""
    requested = list(elements)
    changes = [Change(name, add=added) for name, added in _by_set(requested).items()]
    missing = _missing_chains(table, requested, subnets)
    for attempt in range(_ATTEMPTS):
        try:
            table.change(*changes, new_chains=missing)
            break
        except linux.Missing:  # the first pod of this host, or another program flushed the ruleset
            if attempt == _ATTEMPTS - 1:
                raise
        KernelRuleset().apply(rules())
        missing = []


def _missing_chains(
    table: KernelElements, elements: Iterable[tuple[str, Element]], subnets: Iterable[Network]
) -> list[Chain]:
    """Returns chains of subnets to add. They are asked for first: the kernel takes 10 to 20 ms to abort a transaction
    whose elements lead to a chain that does not exist, and 0.1 ms for one that succeeds."""
    chains = subnet_chains(elements, subnets)
    return [chain for chain in chains if not table.chains().exists("inet", TABLE, chain.name)]


def replace(
    table: KernelElements,
    elements: Iterable[tuple[str, Element]],
    rules: Callable[[], str],
    subnets: Iterable[Network] = (),
) -> None:
    """Adds all elements in place of those with the same keys, for keys that are the pod's own addresses."""
    requested = list(elements)
    try:
        put(table, requested, rules, subnets)
    except linux.ElementExists:
        changes = [_replacement(table, name, added) for name, added in _by_set(requested).items()]
        table.change(*changes, new_chains=_missing_chains(table, requested, subnets))


def _replacement(table: KernelElements, name: str, elements: Sequence[Element]) -> Change:
    keys = {element.key for element in elements}
    return Change(name, add=elements, delete=[element for element in table.list(name) if element.key in keys])


def list_tagged(
    sets: Iterable[str], selects: Callable[[str], bool], table: KernelElements | None = None
) -> dict[str, list[Element]]:
    """Lists the elements whose comments are selected, by set; none if the table does not exist.

    Without a table a socket is opened for this call.
    """
    elements = KernelElements() if table is None else table
    try:
        return {name: [element for element in elements.list(name) if selects(element.comment)] for name in sets}
    except linux.Missing:
        return {name: [] for name in sets}
    finally:
        if table is None:
            elements.close()


def remove(table: KernelElements, sets: Iterable[str], selects: Callable[[str], bool]) -> None:
    """Removes all elements whose comments are selected."""
    try:
        listed = {name: table.list(name) for name in sets}
        gone = {
            name: [element for element in elements if selects(element.comment)] for name, elements in listed.items()
        }
        changes = [Change(name, delete=elements) for name, elements in gone.items() if elements]
        chains = set(filter(_is_of_subnet, (_target(element) for elements in gone.values() for element in elements)))
        used = chains & {
            _target(element) for name, elements in listed.items() for element in elements if element not in gone[name]
        }
        try:
            table.change(*changes, unused_chains=sorted(chains - used))
        except linux.Busy:  # another pod of the subnet was added meanwhile
            table.change(*changes)
        if used:  # unless the other pods are removed at this moment, each of which saw this one
            used -= {_target(element) for name in sets for element in table.list(name)}
            for chain in sorted(used):
                table.tables().delete_chain(TABLE, chain)
    except linux.Missing:  # the table does not exist, or another call removed them at the same time
        if any(list_tagged(sets, selects, table).values()):
            raise


def _is_of_subnet(chain: str) -> bool:
    """Whether a chain ends with the last pod of its subnet."""
    purpose, _, subnet = chain.partition("-")
    return purpose in (MASQUERADE, HAIRPIN) and subnet != ALL_SOURCES


def unused_chains(table: KernelElements) -> list[str]:
    """Returns the chains of subnets that no element leads to."""
    sets = [f"{purpose}{family}" for purpose in (MASQUERADE, HAIRPIN) for family in _IP]
    used = {_target(element) for name in sets for element in list_tagged((name,), bool, table)[name]}
    return sorted(name for name in table.tables().chain_names(TABLE) if name not in used and _is_of_subnet(name))


def delete_unused_chains(table: KernelElements) -> None:
    """Deletes chains that a process left which was killed in between."""
    for name in unused_chains(table):
        table.tables().delete_chain(TABLE, name)


def check_usable(table: KernelElements, set_: str, rules: Callable[[], str]) -> None:
    """Raises LinuxError if elements cannot be added: the set does not exist, and nft rejects the rules."""
    try:
        table.list(set_)
    except linux.Missing:
        KernelRuleset().check(rules())


def _by_set(elements: Iterable[tuple[str, Element]]) -> dict[str, list[Element]]:
    grouped: dict[str, list[Element]] = {}
    for name, element in elements:
        grouped.setdefault(name, []).append(element)
    return grouped
