"""Address translation for pods, in the nft table `inet podwire`: rules that never change, and maps with one element per
pod and purpose.

    masquerade4/6   a pod's address to the chain of its subnet: what leaves the subnet leaves as the host
    ports4/6        protocol and port of any local address, to a pod's address and port
    ports_at4/6     the same for one local address
    hairpin4/6      a pod's address to the chain of its subnet: who asks by a host port from there hears back from us

Elements carry their owner's token as comment. What a pod needs is added in one transaction, and removed in one.
Only packets for an address of this host are redirected, whatever their port.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from ipaddress import ip_network

from podwire.linux import errors as linux
from podwire.linux.nft.table import TABLE, KernelElements, KernelRuleset
from podwire.linux.values import Change, Element
from podwire.protocols.cni.values import Interface, Network

MASQUERADE, HAIRPIN = "masquerade", "hairpin"
EVERYBODY = "all"
PORTS, PORTS_AT = "ports", "ports_at"
_IP = {4: "ip", 6: "ip6"}
_TO_MANY = {4: "{ 224.0.0.0/4, 255.255.255.255 }", 6: "ff00::/8"}

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
# The guard: a port map is of use on 127.0.0.1, too, for which the bridge must route such addresses (route_localnet).
# From outside they must not come in for that.


def ruleset(subnets: Iterable[Network]) -> str:
    """All that does not change; can be applied again and again. Subnets are those whose chains are needed."""
    parts = [_CHAINS.format(table=TABLE)]
    parts += [_FAMILY.format(table=TABLE, v=v, ip=ip) for v, ip in _IP.items()]
    parts += [_subnet(each) for each in subnets]
    return "".join([*parts, _chain(chain(HAIRPIN, None), ["masquerade"])])


def _subnet(subnet: Network) -> str:
    ip = _IP[subnet.version]
    inside = [f"{ip} daddr {subnet} return", f"{ip} daddr {_TO_MANY[subnet.version]} return", "masquerade"]
    return _chain(chain(MASQUERADE, subnet), inside) + _chain(
        chain(HAIRPIN, subnet), [f"{ip} saddr {subnet} masquerade"]
    )


def _chain(name: str, rules: Sequence[str]) -> str:
    head = f"add chain inet {TABLE} {name}\nflush chain inet {TABLE} {name}\n"
    return head + "".join(f"add rule inet {TABLE} {name} {each}\n" for each in rules)


def chain(purpose: str, subnet: Network | None) -> str:
    """The name of a subnet's chain; nft takes no colons in one."""
    if subnet is None:
        return f"{purpose}-{EVERYBODY}"
    base = str(subnet.network_address) if subnet.version == 4 else subnet.network_address.packed.hex()
    return f"{purpose}-{base}-{subnet.prefixlen}"


def jump(purpose: str, interface: Interface, comment: str, *, everybody: bool = False) -> tuple[str, Element]:
    """The element that puts a pod's address under its subnet's rules, and the map that it belongs into."""
    target = chain(purpose, None if everybody else ip_network(interface.network))
    return f"{purpose}{interface.version}", Element(interface.ip.packed, f"jump {target}", comment)


def put(table: KernelElements, elements: Iterable[tuple[str, Element]], subnets: Iterable[Network]) -> None:
    """Add all, or none. ElementExists."""
    put_under(table, elements, partial(ruleset, subnets))


def put_under(table: KernelElements, elements: Iterable[tuple[str, Element]], rules: Callable[[], str]) -> None:
    """The same for any rules, which are made if they are not there."""
    changes = [Change(name, add=each) for name, each in _by_set(elements).items()]
    try:
        table.change(*changes)
    except linux.Missing:  # the first pod here, the first of its subnet, or somebody flushed all rules
        KernelRuleset().apply(rules())
        table.change(*changes)


def replace(table: KernelElements, elements: Iterable[tuple[str, Element]], subnets: Iterable[Network]) -> None:
    """Add all in place of what has the same keys: the keys are addresses that belong to whoever puts them."""
    replace_under(table, elements, partial(ruleset, subnets))


def replace_under(table: KernelElements, elements: Iterable[tuple[str, Element]], rules: Callable[[], str]) -> None:
    wanted = list(elements)
    try:
        put_under(table, wanted, rules)
    except linux.ElementExists:
        table.change(*(_replaced(table, name, each) for name, each in _by_set(wanted).items()))


def _replaced(table: KernelElements, name: str, elements: Sequence[Element]) -> Change:
    keys = {each.key for each in elements}
    return Change(name, add=elements, delete=[each for each in table.list(name) if each.key in keys])


def marked(
    sets: Iterable[str], marks: Callable[[str], bool], table: KernelElements | None = None
) -> dict[str, list[Element]]:
    """The elements whose comments are somebody's, by set; none where there is no table. Without a socket to it, one is
    opened for this."""
    asked = KernelElements() if table is None else table
    try:
        return {name: [each for each in asked.list(name) if marks(each.comment)] for name in sets}
    except linux.Missing:
        return {name: [] for name in sets}
    finally:
        if table is None:
            asked.close()


def remove(table: KernelElements, sets: Iterable[str], marks: Callable[[str], bool]) -> None:
    """Remove all elements whose comments are somebody's."""
    try:
        found = {name: [each for each in table.list(name) if marks(each.comment)] for name in sets}
        table.change(*(Change(name, delete=each) for name, each in found.items() if each))
    except linux.Missing:  # no table, or somebody was faster
        if any(marked(sets, marks, table).values()):
            raise


def check_usable(table: KernelElements) -> None:
    """Whether elements could be put: the maps are there, or can be made. Changes nothing."""
    try:
        table.list(f"{MASQUERADE}4")
    except linux.Missing:
        KernelRuleset().check(ruleset(()))


def _by_set(elements: Iterable[tuple[str, Element]]) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {}
    for name, each in elements:
        found.setdefault(name, []).append(each)
    return found
