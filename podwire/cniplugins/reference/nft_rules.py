"""Makes the nft rules of the reference plugins, for a pod that is handed over to them.

They use nftables where the configuration names it, and where iptables is missing. Their DEL, CHECK and GC find rules by
the comments alone. Each function is one transaction, which replaces rules that an earlier one made.
"""

from collections.abc import Collection, Iterable

from podwire.cniplugins.netfilter import Netfilter
from podwire.cniplugins.reference import names, rules
from podwire.linux.nft.chains import Chain
from podwire.linux.nft.table import KernelRuleset
from podwire.protocols.cni.values import Interface

_IP = {4: "ip", 6: "ip6"}
_MASQUERADE = """
add table {table}
add chain {table} masq_checks
add chain {table} postrouting {{ type nat hook postrouting priority 100; }}
flush chain {table} postrouting
add rule {table} postrouting ip daddr 224.0.0.0/4 return
add rule {table} postrouting ip6 daddr ff00::/8 return
add rule {table} postrouting goto masq_checks
"""
_HOST_PORTS = """
add table {table}
add chain {table} hostports
add chain {table} hostip_hostports
add chain {table} hostports_all
flush chain {table} hostports_all
add rule {table} hostports_all jump hostip_hostports
add rule {table} hostports_all jump hostports
add chain {table} prerouting {{ type nat hook prerouting priority -100; }}
flush chain {table} prerouting
add rule {table} prerouting fib daddr type local jump hostports_all
add chain {table} output {{ type nat hook output priority -100; }}
flush chain {table} output
add rule {table} output fib daddr type local jump hostports_all
add chain {table} masquerading {{ type nat hook postrouting priority 100; }}
"""


def masquerade(netfilter: Netfilter, attachment: tuple[str, str, str], addresses: Iterable[Interface]) -> None:
    """Masquerades what leaves the networks of addresses. `attachment` is network, container id and ifname."""
    (chain,) = rules.MASQUERADE
    comment = names.full_masquerade_comment(*attachment)
    added = [
        f"add rule {chain} {_IP[address.version]} saddr {address.ip} {_IP[address.version]} daddr != {address.network} "
        f'masquerade comment "{comment}"'
        for address in addresses
    ]
    _replace(netfilter, [chain], comment, _MASQUERADE, added)


def map_ports(
    netfilter: Netfilter, container_id: str, pod: Interface, ports: Iterable[str], *, masquerades: bool
) -> None:
    """Maps host ports to an address of a pod. `ports` are rules such as `tcp dport 8080 dnat to 10.88.0.2:80`."""
    ip = _IP[pod.version]
    chains = {chain.name: chain for chain in rules.HOST_PORTS if chain.family == ip}
    comment = f'comment "{container_id}"'
    added = [f"add rule {chains['hostports']} {port} {comment}" for port in ports]
    if masquerades:
        sources = [str(pod.ip), *(["127.0.0.1"] if pod.version == 4 else [])]
        returned = [f"{ip} saddr {source} {ip} daddr {pod.ip} masquerade" for source in sources]
        added += [f"add rule {chains['masquerading']} {rule} {comment}" for rule in returned]
    _replace(netfilter, chains.values(), container_id, _HOST_PORTS, added)


def _replace(netfilter: Netfilter, chains: Collection[Chain], comment: str, ruleset: str, added: Iterable[str]) -> None:
    """Adds rules to the chains of one table instead of those with the same comment."""
    stale = [
        f"delete rule {chain} handle {rule.handle}"
        for chain in chains
        for rule in rules.rules_of(netfilter, chain)
        if rule.comment == comment
    ]
    family, table, *_ = next(iter(chains))
    KernelRuleset().apply("\n".join([ruleset.format(table=f"{family} {table}"), *stale, *added, ""]))
