"""Rules of iptables, where a configuration asks for them (`backend`, `ipMasqBackend`).

Names and rules are those of the reference plugins, so that each removes what the other added (`reference/`), and other
programs that look for them find them. Each change is one call of `iptables-restore`, all or none. It is made from the
saved rules, and made again if another program has changed them meanwhile.
"""

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from ipaddress import ip_interface
from typing import TypeVar

from podwire.cniplugins.attachments import Record
from podwire.cniplugins.netfilter import Netfilter
from podwire.cniplugins.reference import iptables_rules, names, rules
from podwire.cniplugins.reference.iptables_rules import DNAT, FORWARD, ISOLATION, MASQ, SETMARK, Saved
from podwire.linux import errors as linux
from podwire.linux.nft.iptables import Iptables, tables_with
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import decode as decode_result
from podwire.protocols.cni.values import Address, Interface
from podwire.protocols.cni.versions import LATEST

T = TypeVar("T", Address, Interface)
ADMIN = "CNI-ADMIN"
NFT = "nft"
_FAMILIES = {4: "ip", 6: "ip6"}
_MULTICAST = {4: "224.0.0.0/4", 6: "ff00::/8"}
_ATTEMPTS = 5
_PORTS_PER_RULE = 15
_LONGEST_COMMENT = 255
_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


def check_installed(key: str) -> None:
    """Raises CniError if iptables is missing."""
    for family in ("iptables", "ip6tables"):
        programs = [f"{directory}/{family}{part}-restore" for directory in _DIRECTORIES for part in ("-nft", "")]
        if not any(os.access(program, os.X_OK) for program in programs):
            fix = "install it (Debian: apt install iptables), or use nftables"
            raise CniError(Code.REFUSED, f"{key}: {family} is not installed; {fix}")


def masquerade(record: Record, addresses: Iterable[Interface], variant: str = NFT) -> None:
    """Masquerades packets from a pod's addresses that leave their networks."""
    (chain,) = names.chain_names(record.network, record.container_id)
    comment = _comment(f'name: "{record.network}" id: "{record.container_id}"')
    for family, own in _by_family(addresses).items():

        def build(saved: Saved, family: int = family, own: Collection[Interface] = own) -> list[str]:
            jumps = {_source(rule) for rule in saved.of("POSTROUTING") if rule.target == chain}
            subnets = [rule.option("-d") for rule in saved.of(chain) if rule.target == "ACCEPT"]
            subnets += [str(address.network) for address in own]
            return [
                _emptied(saved, chain),
                *(f"-A {chain} -d {subnet} {comment} -j ACCEPT" for subnet in dict.fromkeys(subnets)),
                f"-A {chain} ! -d {_MULTICAST[family]} {comment} -j MASQUERADE",
                *(f"-A POSTROUTING -s {address.ip} {comment} -j {chain}" for address in own if address.ip not in jumps),
            ]

        _change(family, "nat", build, variant)


def end_masquerade(netfilter: Netfilter, record: Record) -> None:
    """Removes the rules of a pod's addresses, and its chain unless another interface of the container uses it."""
    if record.result is None:
        rules.remove_masquerade(netfilter, record.network, record.container_id, record.ifname)
        return
    own = {ip.address.ip for ip in decode_result(record.result, LATEST).ips}
    (chain,) = names.chain_names(record.network, record.container_id)
    for table in tables_with(netfilter.elements.chains(), "nat", chain):
        rules.change(table, lambda saved: _unmasqueraded(saved, chain, own))


def _unmasqueraded(
    saved: Saved, chain: str, own: Collection[Address]
) -> tuple[Collection[str], list[iptables_rules.Rule]]:
    jumps = [rule for rule in saved.of("POSTROUTING") if rule.target == chain]
    ours = [rule for rule in jumps if _source(rule) in own]
    return ([chain] if len(ours) == len(jumps) else []), ours


def check_masquerade(netfilter: Netfilter, record: Record, addresses: Iterable[Interface]) -> Address | None:
    """Returns an address that is not masqueraded; None if all are."""
    (chain,) = names.chain_names(record.network, record.container_id)
    saved = [_saved(table) for table in tables_with(netfilter.elements.chains(), "nat", chain)]
    present = {_source(rule) for part in saved for rule in part.of("POSTROUTING") if rule.target == chain}
    return next((address.ip for address in addresses if address.ip not in present), None)


class Ports:
    """Host ports of one pod in one family."""

    def __init__(
        self,
        record: Record,
        *,
        mark_bit: int,
        external_chain: str,
        conditions: Iterable[str],
        variant: str = NFT,
    ) -> None:
        (self.chain,) = names.chain_names(record.network, record.container_id, ("DN-",))
        self._comment = _comment(f'dnat name: "{record.network}" id: "{record.container_id}"')
        self._mark = f"{1 << mark_bit:#x}/{1 << mark_bit:#x}"
        self._external = external_chain
        self._conditions = " ".join(_quoted(word) for word in conditions)
        self._variant = variant

    def add(self, family: int, ports: dict[str, list[int]], entries: list[str], *, marks: bool) -> None:
        """`ports` are the host ports by protocol, `entries` the rules of the pod's chain."""
        _change(family, "nat", lambda saved: self._build(saved, ports, entries, marks=marks), self._variant)

    @property
    def set_mark(self) -> str:
        return self._external or SETMARK

    def _build(self, saved: Saved, ports: dict[str, list[int]], entries: list[str], *, marks: bool) -> list[str]:
        lines = self._marking(saved) if marks and not self._external else []
        if DNAT not in saved.chains:
            lines.append(f"-N {DNAT}")
        for entry in ("PREROUTING", "OUTPUT"):
            if not any(rule.target == DNAT for rule in saved.of(entry)):
                lines.append(f"-A {entry} -m addrtype --dst-type LOCAL -j {DNAT}")
        lines += [f"-D {DNAT} {rule.text}" for rule in saved.of(DNAT) if rule.target == self.chain]
        lines += [_emptied(saved, self.chain), *(f"-A {self.chain} {entry}" for entry in entries)]
        for protocol, numbers in ports.items():
            for first in range(0, len(numbers), _PORTS_PER_RULE):
                listed = ",".join(map(str, numbers[first : first + _PORTS_PER_RULE]))
                match = f"-p {protocol} {self._comment} -m multiport --dports {listed} {self._conditions}".rstrip()
                lines.append(f"-A {DNAT} {match} -j {self.chain}")
        return lines

    def _marking(self, saved: Saved) -> list[str]:
        lines = [] if SETMARK in saved.chains else [f"-N {SETMARK}"]
        if not any(rule.target == "MARK" for rule in saved.of(SETMARK)):
            comment = _comment("CNI portfwd masquerade mark")
            lines.append(f"-A {SETMARK} {comment} -j MARK --set-xmark {self._mark}")
        lines += [] if MASQ in saved.chains else [f"-N {MASQ}"]
        if not any(rule.target == "MASQUERADE" for rule in saved.of(MASQ)):
            lines.append(f"-A {MASQ} -m mark --mark {self._mark} -j MASQUERADE")
        if not any(rule.target == MASQ for rule in saved.of("POSTROUTING")):
            lines.append(f"-I POSTROUTING 1 {_comment('CNI portfwd requiring masquerade')} -j {MASQ}")
        return lines


def host_port_targets(netfilter: Netfilter, record: Record) -> set[tuple[str, int, str]]:
    """Returns protocol, host port and target of a pod's host ports."""
    (chain,) = names.chain_names(record.network, record.container_id, ("DN-",))
    found = set()
    for table in tables_with(netfilter.elements.chains(), "nat", chain):
        saved = _saved(table)
        if any(rule.target == chain for rule in saved.of(DNAT)):
            for rule in saved.of(chain):
                with suppress(ValueError):
                    found.add((rule.option("-p"), int(rule.option("--dport")), rule.option("--to-destination")))
    return found


def accept_forwarded(addresses: Iterable[Address], admin: str, variant: str = NFT) -> None:
    """Accepts what a pod sends, and replies to it, behind the rules of an administrator in a chain of its own."""
    for family, own in _by_family(addresses).items():

        def build(saved: Saved, own: Collection[Address] = own) -> list[str]:
            lines = [f"-N {chain}" for chain in (FORWARD, admin) if chain not in saved.chains]
            if not any(rule.target == FORWARD for rule in saved.of("FORWARD")):
                lines.append(f"-I FORWARD 1 {_comment('CNI firewall plugin rules')} -j {FORWARD}")
            if not any(rule.target == admin for rule in saved.of(FORWARD)):
                lines.append(f"-I {FORWARD} 1 {_comment('CNI firewall plugin admin overrides')} -j {admin}")
            sources = {_source(rule) for rule in saved.of(FORWARD) if rule.target == "ACCEPT"}
            for address in own:
                if address not in sources:
                    replies = "-m conntrack --ctstate RELATED,ESTABLISHED"
                    lines.append(f"-A {FORWARD} -d {address} {replies} -j ACCEPT")
                    lines.append(f"-A {FORWARD} -s {address} -j ACCEPT")
            return lines

        _change(family, "filter", build, variant)


def isolate_bridge(bridge: str, policy: str, families: Iterable[int], variant: str) -> None:
    """Keeps other bridges from a bridge (`same-bridge`), and its ports from each other (`isolated`)."""
    first, second = ISOLATION
    shared = _comment("CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)")
    own = _comment(f"CNI firewall plugin rules (ingressPolicy: {policy})")

    def build(saved: Saved) -> list[str]:
        lines = [f"-N {chain}" for chain in ISOLATION if chain not in saved.chains]
        if not any(rule.target == first for rule in saved.of("FORWARD")):
            lines.append(f"-I FORWARD 1 {shared} -j {first}")
        lines += [f"-A {chain} {shared} -j RETURN" for chain in ISOLATION if not saved.of(chain)]
        if not any(rule.option("-i") == bridge and rule.target == second for rule in saved.of(first)):
            lines.append(f"-I {first} 1 -i {bridge} ! -o {bridge} {own} -j {second}")
        if not any(rule.option("-o") == bridge for rule in saved.of(second)):
            lines.append(f"-I {second} 1 -o {bridge} {shared} -j DROP")
        if policy == "isolated" and not any(rule.option("-o") == bridge for rule in saved.of(first)):
            lines.append(f"-I {first} 1 -i {bridge} -o {bridge} {own} -j DROP")
        return lines

    for family in sorted(set(families)):
        _change(family, "filter", build, variant)


def _by_family(addresses: Iterable[T]) -> dict[int, list[T]]:
    families: dict[int, list[T]] = {}
    for address in addresses:
        families.setdefault(address.version, []).append(address)
    return families


def _source(rule: iptables_rules.Rule) -> Address | None:
    try:
        return ip_interface(rule.option("-s")).ip
    except ValueError:
        return None


def _emptied(saved: Saved, chain: str) -> str:
    return f"-F {chain}" if chain in saved.chains else f"-N {chain}"


def _comment(text: str) -> str:
    return f"-m comment --comment {_quoted(text[:_LONGEST_COMMENT])}"


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def _saved(table: Iptables) -> Saved:
    return iptables_rules.parse(table.table, table.save())


def _change(family: int, name: str, build: Callable[[Saved], list[str]], variant: str) -> None:
    """Applies commands that are built from the saved rules; again if they no longer fit."""
    table = Iptables(_FAMILIES[family], name, variant)
    for attempt in range(_ATTEMPTS):
        commands = "\n".join([f"*{name}", *build(_saved(table)), "COMMIT", ""])
        try:
            return table.apply(commands)
        except linux.BadRuleset:
            if attempt == _ATTEMPTS - 1:
                raise
    return None
