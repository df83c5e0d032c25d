"""Rules of the reference plugins: those of an attachment are found and removed, those of pods that are gone collected.

Versions before 1.6 have iptables rules. Later ones have nft tables of their own for masquerading and host ports, where
the configuration asks for it or iptables is missing. Both are looked for; what does not exist costs a netlink request.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, NamedTuple

from podwire.cniplugins.netfilter import Netfilter
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.reference import iptables_rules as iptables
from podwire.cniplugins.reference import names
from podwire.linux import errors as linux
from podwire.linux.nft.chains import Chain, Rule
from podwire.linux.nft.iptables import Iptables, tables_with
from podwire.linux.nft.table import KernelRuleset
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.values import Address
from podwire.protocols.cni.verbs import Invocation

HOST_PORT_KINDS = ("DN-", "SN-")
MASQUERADE = (Chain("inet", "cni_plugins_masquerade", "masq_checks"),)
HOST_PORTS = tuple(
    Chain(family, "cni_hostport", name)
    for family in ("ip", "ip6")
    for name in ("hostports", "hostip_hostports", "masquerading")
)
_GUARDED = Chain("bridge", "nat", "PREROUTING")
_LONGEST_CHAIN = 250
"""Characters of the name of an nft chain, to which "-mac" is added."""
_ATTEMPTS = 3
"""Another program may change the same tables between reading and removing."""


def remove_masquerade(netfilter: Netfilter, network: str, container_id: str, ifname: str) -> None:
    prefix = _prefix(netfilter, network, container_id, ifname)
    _remove_rules(netfilter, MASQUERADE, lambda comment: comment.startswith(prefix))
    if tables_with(netfilter.elements.chains(), "nat", "POSTROUTING"):
        _remove_chains(netfilter, names.chain_names(network, container_id))


def _prefix(netfilter: Netfilter, network: str, container_id: str, ifname: str) -> str:
    """Returns the beginning of the comments of an attachment; a hash is not worth its time without the table."""
    exists = netfilter.elements.chains().exists(*MASQUERADE[0][:3])
    return names.masquerade_comment(network, container_id, ifname) if exists else "-"


def remove_host_ports(netfilter: Netfilter, network: str, container_id: str) -> None:
    _remove_rules(netfilter, HOST_PORTS, lambda comment: comment == container_id)
    if _has_iptables_host_ports(netfilter):
        _remove_chains(netfilter, names.chain_names(network, container_id, HOST_PORT_KINDS))


def remove_forwarding(netfilter: Netfilter, addresses: Collection[Address]) -> None:
    """Removes what the firewall plugin accepts for addresses, which are all that its rules name."""
    for table in tables_with(netfilter.elements.chains(), "filter", iptables.FORWARD) if addresses else ():
        change(table, lambda saved: ((), _of_addresses(saved, addresses)))


def remove_spoofing_guard(netfilter: Netfilter, container_id: str, ifname: str) -> None:
    """Removes the chains of `macspoofchk`, which are named by the ids alone."""
    guard, comment = f"cni-br-iface-{container_id}-{ifname}", f"macspoofchk-{container_id}-{ifname}"
    if len(guard) < _LONGEST_CHAIN and netfilter.elements.chains().exists(*_GUARDED[:2], guard):
        jumps = [rule for rule in rules_of(netfilter, _GUARDED) if rule.comment == comment]
        chains = [f"bridge nat {name}" for name in (guard, f"{guard}-mac")]
        lines = [f"delete rule {_GUARDED} handle {rule.handle}" for rule in jumps]
        lines += [f"add chain {chain}\nflush chain {chain}" for chain in chains]
        lines += [f"delete chain {chain}" for chain in chains]
        KernelRuleset().apply("\n".join([*lines, ""]))


def add_spoofing_guard(port: str, mac: str, container_id: str, ifname: str) -> None:
    """Drops frames of a bridge's port with other MAC addresses, by the chains of `macspoofchk`."""
    name, owner = f"cni-br-iface-{container_id}-{ifname}", f'comment "macspoofchk-{container_id}-{ifname}"'
    guard = f"bridge nat {name}"
    lines = [
        "add table bridge nat",
        f"add chain {_GUARDED} {{ type filter hook prerouting priority -300; policy accept; }}",
        *(f"add chain {chain}\nflush chain {chain}" for chain in (f"{guard}-mac", guard)),
        f"add rule {guard}-mac ether saddr {mac} return {owner}",
        f"add rule {guard}-mac drop {owner}",
        f"add rule {guard} jump {name}-mac {owner}",
        f'add rule {_GUARDED} iifname "{port}" jump {name} {owner}',
    ]
    KernelRuleset().apply("\n".join([*lines, ""]))


def has_forwarding(netfilter: Netfilter) -> bool:
    """Whether the firewall plugin may have rules."""
    return bool(tables_with(netfilter.elements.chains(), "filter", iptables.FORWARD))


def check_masquerade(netfilter: Netfilter, network: str, request: Invocation) -> None:
    prefix = _prefix(netfilter, network, request.container_id, request.ifname)
    native = any(rule.comment.startswith(prefix) for rule in rules_of(netfilter, MASQUERADE[0]))
    chains = names.chain_names(network, request.container_id)
    expect(native or _has_chain(netfilter, chains), f"{request.container_id} {request.ifname} is not masqueraded")


def has_host_ports(netfilter: Netfilter, network: str, container_id: str) -> bool:
    native = any(rule.comment == container_id for chain in HOST_PORTS for rule in rules_of(netfilter, chain))
    return native or _has_chain(netfilter, names.chain_names(network, container_id, HOST_PORT_KINDS))


def forwarded(netfilter: Netfilter) -> set[Address]:
    """Returns the addresses whose packets the firewall plugin accepts."""
    tables = tables_with(netfilter.elements.chains(), "filter", iptables.FORWARD)
    rules = [rule for table in tables for rule in _saved(table).of(iptables.FORWARD)]
    sources = [rule.option("-s") for rule in rules if rule.target == "ACCEPT"]
    return {ip_interface(source).ip for source in sources if source}


class HostPort(NamedTuple):
    protocol: str
    port: int
    host_ip: Address | None
    target: Address
    owner: str
    """The container's id."""


def host_ports(netfilter: Netfilter) -> Iterator[HostPort]:
    """Yields the host ports of pods that the portmap plugin has rules for."""
    for family in ("ip", "ip6"):
        if netfilter.elements.chains().exists(family, *HOST_PORTS[0][1:3]):
            listed = json.loads(KernelRuleset().listed(family, HOST_PORTS[0].table) or '{"nftables": []}')["nftables"]
            for rule in (entry["rule"] for entry in listed if "rule" in entry):
                with suppress(LookupError, TypeError, ValueError):  # a rule of another form
                    yield _parse_host_port(rule)
    yield from _iptables_host_ports(netfilter)


def _parse_host_port(rule: dict[str, Any]) -> HostPort:
    """Parses a rule such as `ip daddr 192.0.2.1 tcp dport 8080 dnat to 10.88.0.2:80`."""
    matches = {
        match["left"]["payload"]["field"]: (match["left"]["payload"]["protocol"], match["right"])
        for expression in rule["expr"]
        if (match := expression.get("match")) is not None
    }
    (target,) = [expression["dnat"]["addr"] for expression in rule["expr"] if "dnat" in expression]
    protocol, port = matches["dport"]
    host = matches.get("daddr")
    host_ip = ip_address(host[1]) if host else None
    return HostPort(protocol, int(port), host_ip, ip_address(target), rule.get("comment", ""))


def _iptables_host_ports(netfilter: Netfilter) -> Iterator[HostPort]:
    for table in tables_with(netfilter.elements.chains(), "nat", iptables.DNAT):
        saved = _saved(table)
        owners = {rule.target: names.owner_of_comment(rule.comment) for rule in saved.of(iptables.DNAT)}
        for rule in saved.rules:
            if rule.chain in owners and rule.target == "DNAT":
                host, port = rule.option("-d"), rule.option("--dport")
                target = rule.option("--to-destination").rpartition(":")[0].strip("[]")
                owner = (owners[rule.chain] or ("", ""))[1]
                with suppress(ValueError):  # not in a form that the reference plugin writes
                    ip = ip_interface(host).ip if host else None
                    yield HostPort(rule.option("-p"), int(port), ip, ip_address(target), owner)


def collect_masquerade(netfilter: Netfilter, network: str, valid: Valid) -> None:
    if netfilter.elements.chains().exists(*MASQUERADE[0][:3]):
        ours = names.network_comment(network)
        kept = tuple(names.masquerade_comment(network, id_, ifname) for id_, ifname in valid)
        _remove_rules(netfilter, MASQUERADE, lambda comment: comment.startswith(ours) and not comment.startswith(kept))
    _collect_chains(netfilter, "POSTROUTING", network, valid)


def collect_host_ports(netfilter: Netfilter, network: str, valid: Valid) -> None:
    """Collects rules of iptables. Those of nft name no network: they may be of a pod that another one has."""
    if _has_iptables_host_ports(netfilter):
        _collect_chains(netfilter, iptables.DNAT, network, valid)


def _has_iptables_host_ports(netfilter: Netfilter) -> bool:
    return bool(tables_with(netfilter.elements.chains(), "nat", iptables.DNAT))


def _collect_chains(netfilter: Netfilter, entry: str, network: str, valid: Valid) -> None:
    def stale(saved: iptables.Saved) -> tuple[list[str], list[iptables.Rule]]:
        owners = {rule.target: names.owner_of_comment(rule.comment) for rule in saved.of(entry)}
        dead = [
            chain
            for chain, owner in owners.items()
            if chain.startswith("CNI-") and owner is not None and owner[0] == network
            if not names.is_valid_id(owner[1], valid)
        ]
        return dead, []

    for table in tables_with(netfilter.elements.chains(), "nat", entry):
        change(table, stale)


def _has_chain(netfilter: Netfilter, chains: Iterable[str]) -> bool:
    found = ((chain, table) for chain in chains for table in tables_with(netfilter.elements.chains(), "nat", chain))
    return any(table.variant == "nft" or chain in _saved(table).chains for chain, table in found)


def _remove_chains(netfilter: Netfilter, chains: Collection[str]) -> None:
    tables = {table for chain in chains for table in tables_with(netfilter.elements.chains(), "nat", chain)}
    for table in tables:
        change(table, lambda _saved: (chains, ()))


def _of_addresses(saved: iptables.Saved, addresses: Collection[Address]) -> list[iptables.Rule]:
    exact = {str(ip_network(ip)) for ip in addresses}
    return [rule for rule in saved.of(iptables.FORWARD) if {rule.option("-s"), rule.option("-d")} & exact]


def _saved(table: Iptables) -> iptables.Saved:
    return iptables.parse(table.table, table.save())


def change(
    table: Iptables, select: Callable[[iptables.Saved], tuple[Collection[str], Iterable[iptables.Rule]]]
) -> None:
    """Removes the chains and rules that are selected."""
    for attempt in range(_ATTEMPTS):
        saved = _saved(table)
        commands = iptables.removal(saved, *select(saved))
        if not commands:
            return None
        try:
            return table.apply(commands)
        except linux.BadRuleset:
            if attempt == _ATTEMPTS - 1:
                raise
    return None


def rules_of(netfilter: Netfilter, chain: Chain) -> list[Rule]:
    try:
        return netfilter.elements.chains().rules(chain)
    except linux.Missing:
        return []


def _remove_rules(netfilter: Netfilter, chains: Iterable[Chain], selects: Callable[[str], bool]) -> None:
    """Removes the rules of nft whose comments are selected, and their table with the last one."""
    for attempt in range(_ATTEMPTS):
        present = [chain for chain in chains if netfilter.elements.chains().exists(*chain[:3])]
        rules = {chain: rules_of(netfilter, chain) for chain in present}
        gone = [(chain, rule) for chain, listed in rules.items() for rule in listed if selects(rule.comment)]
        if not gone:
            return None
        left = {chain[:2] for chain, listed in rules.items() if any(not selects(rule.comment) for rule in listed)}
        tables = {chain[:2] for chain, _ in gone} - left
        lines = [f"delete rule {chain} handle {rule.handle}" for chain, rule in gone if chain[:2] not in tables]
        lines += [f"delete table {family} {table}" for family, table in sorted(tables)]
        try:
            return KernelRuleset().apply("\n".join([*lines, ""]))
        except linux.BadRuleset:
            if attempt == _ATTEMPTS - 1:
                raise
    return None
