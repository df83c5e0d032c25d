"""Firewalls of other programs that would drop what ours accepts: in nftables a packet must pass every table.

Packets that our chain accepts get a mark. If iptables has a chain FORWARD with the policy DROP, as Docker makes it, one
rule at its end accepts marked packets, in a form that iptables shows as its own. Packets that one of its rules drops
stay dropped. The rule is removed with the last pod.

What other chains with the policy drop accept is unknown: ADD warns of them. Chains of iptables-legacy are not seen.
"""

from collections.abc import Callable
from functools import partial
from struct import pack

from podwire.cniplugins.netfilter import Netfilter
from podwire.linux import errors as linux
from podwire.linux.nft.chains import Chain, Rule
from podwire.linux.nft.table import TABLE, KernelRuleset
from podwire.protocols.cni.errors import CniError, Code

MARK = 0x1000
"""A bit of the packet mark that neither the reference plugins (0x2000) nor kube-proxy (0x4000, 0x8000) use."""
_FAMILIES = ("ip", "ip6")


def is_iptables(chain: Chain) -> bool:
    return (chain.table, chain.name) == ("filter", "FORWARD") and chain.family in _FAMILIES


def accepts_marked(rule: Rule) -> bool:
    """Whether it is our rule: mask and value are the mark, in whatever form iptables has saved and loaded it."""
    return rule.expressions.count(pack("=I", MARK)) >= 2


def _dropping(netfilter: Netfilter) -> list[Chain]:
    return [chain for chain in netfilter.elements.chains().forwarding() if chain.drops and chain.table != TABLE]


def _is_open(netfilter: Netfilter, chain: Chain) -> bool:
    return chain not in _dropping(netfilter)


def _lacks(netfilter: Netfilter, chain: Chain) -> bool:
    return not any(map(accepts_marked, netfilter.elements.chains().rules(chain)))


def accept_marked(netfilter: Netfilter, warn: Callable[[str], None]) -> None:
    """Adds the rule where it is needed; called after a pod is in our sets."""
    for chain in _dropping(netfilter):
        if not is_iptables(chain):
            warn(f"podwire firewall: the nft chain {chain} has the policy drop and may drop packets of pods")
        elif _lacks(netfilter, chain):
            rule = f'meta mark and {MARK:#x} == {MARK:#x} counter accept comment "podwire"'
            _apply(f"add rule {chain} {rule}\n", partial(_is_open, netfilter, chain))


def _apply(ruleset: str, is_unneeded: Callable[[], bool]) -> None:
    """Ignores a failure if another process did the same, or removed the chain, at the same time."""
    try:
        KernelRuleset().apply(ruleset)
    except linux.BadRuleset:
        if not is_unneeded():
            raise


def check(netfilter: Netfilter) -> None:
    for chain in filter(is_iptables, _dropping(netfilter)):
        if _lacks(netfilter, chain):
            reason = f"the rule that accepts the mark {MARK:#x} is missing"
            raise CniError(Code.NOT_AS_ADDED, f"the nft chain {chain} drops packets of pods: {reason}")


def remove_rules(netfilter: Netfilter, is_used: Callable[[], bool]) -> None:
    """Removes our rules with the last pod; called after a pod has left our sets.

    The sets are read twice: an ADD that ran between them found the rule that was then removed, so it is added again.
    """
    if is_used():
        return
    chains = netfilter.elements.chains()
    for chain in filter(is_iptables, chains.forwarding()):
        ours = [rule for rule in chains.rules(chain) if accepts_marked(rule)]
        if ours:
            lines = [f"delete rule {chain} handle {rule.handle}\n" for rule in ours]
            _apply("".join(lines), partial(_lacks, netfilter, chain))
    if is_used():
        accept_marked(netfilter, lambda _line: None)
