"""Firewalls of others that would drop what ours accepts: in nftables every table has its say.

What our chain accepts bears a mark. Where iptables has a chain FORWARD that drops what none of its rules decides, as
Docker makes it, one rule at its end accepts what is marked, in a form that iptables reads as its own. Whatever a rule
of theirs drops stays dropped. The rule goes with the last pod.

Of other chains that drop by themselves nobody can say what their rules accept: they are named to whoever attaches a
pod. Those of iptables-legacy are not seen.
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
"""A bit of a packet's mark which neither the reference plugins (0x2000) nor kube-proxy (0x4000, 0x8000) have."""
_FAMILIES = ("ip", "ip6")


def is_iptables(chain: Chain) -> bool:
    return (chain.table, chain.name) == ("filter", "FORWARD") and chain.family in _FAMILIES


def accepts_marked(rule: Rule) -> bool:
    """Whether it is our rule: mask and value are the mark, however iptables wrote it when it loaded it again."""
    return rule.expressions.count(pack("=I", MARK)) >= 2


def _dropping(netfilter: Netfilter) -> list[Chain]:
    return [each for each in netfilter.elements.chains().forwarding() if each.drops and each.table != TABLE]


def _is_open(netfilter: Netfilter, chain: Chain) -> bool:
    return chain not in _dropping(netfilter)


def _lacks(netfilter: Netfilter, chain: Chain) -> bool:
    return not any(map(accepts_marked, netfilter.elements.chains().rules(chain)))


def let_through(netfilter: Netfilter, tell: Callable[[str], None]) -> None:
    """After a pod is in our sets."""
    for chain in _dropping(netfilter):
        if not is_iptables(chain):
            tell(f"the nft chain {chain} drops what none of its rules accepts, maybe what pods send, too")
        elif _lacks(netfilter, chain):
            rule = f'meta mark and {MARK:#x} == {MARK:#x} counter accept comment "podwire"'
            _apply(f"add rule {chain} {rule}\n", partial(_is_open, netfilter, chain))


def _apply(ruleset: str, is_needless: Callable[[], bool]) -> None:
    """Unless somebody was faster, or has taken the chain away."""
    try:
        KernelRuleset().apply(ruleset)
    except linux.BadRuleset:
        if not is_needless():
            raise


def check(netfilter: Netfilter) -> None:
    for chain in filter(is_iptables, _dropping(netfilter)):
        if _lacks(netfilter, chain):
            told = f"the nft chain {chain} drops what pods send: the rule that accepts the mark {MARK:#x} is gone"
            raise CniError(Code.NOT_AS_ADDED, told)


def take_back(netfilter: Netfilter, is_used: Callable[[], bool]) -> None:
    """After a pod has left our sets. Who comes between the two looks at the sets finds its rule, or makes it."""
    if is_used():
        return
    chains = netfilter.elements.chains()
    for chain in filter(is_iptables, chains.forwarding()):
        ours = [each for each in chains.rules(chain) if accepts_marked(each)]
        if ours:
            lines = [f"delete rule {chain} handle {each.handle}\n" for each in ours]
            _apply("".join(lines), partial(_lacks, netfilter, chain))
    if is_used():
        let_through(netfilter, lambda _line: None)
