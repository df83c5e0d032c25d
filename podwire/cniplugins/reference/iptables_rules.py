"""The text of `iptables-save`, and commands that remove chains and rules of the reference plugins from it. Pure."""

import re
import shlex
from collections.abc import Collection, Iterable
from typing import NamedTuple

DNAT, MASQ, SETMARK, SNAT = (f"CNI-HOSTPORT-{kind}" for kind in ("DNAT", "MASQ", "SETMARK", "SNAT"))
FORWARD = "CNI-FORWARD"
ISOLATION = ("CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2")
_ADMIN = "CNI firewall plugin admin overrides"
_TARGET = re.compile(r"(?:^| )-[jg] (\S+)")


class Rule(NamedTuple):
    chain: str
    text: str
    """All behind the chain, as `iptables-restore` reads it."""

    @property
    def target(self) -> str:
        found = _TARGET.search(self.text)
        return found[1] if found else ""

    @property
    def comment(self) -> str:
        return self.option("--comment")

    def option(self, name: str) -> str:
        """Returns the value of an option; empty if it is missing or negated."""
        try:
            words = shlex.split(self.text)
        except ValueError:
            return ""
        for before, word, value in zip(["", *words], words, words[1:], strict=False):
            if word == name and before != "!":
                return value
        return ""


class Saved(NamedTuple):
    """A table: the chains that are not built in, and all rules."""

    table: str
    chains: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()

    def of(self, chain: str) -> list[Rule]:
        return [rule for rule in self.rules if rule.chain == chain]


def parse(table: str, text: str) -> Saved:
    lines = text.splitlines()
    words = [line[1:].split() for line in lines if line.startswith(":")]
    rules = [line.split(" ", 2)[1:] for line in lines if line.startswith("-A ")]
    return Saved(
        table,
        frozenset(chain for chain, policy, *_ in words if policy == "-"),
        tuple(Rule(chain, rest[0] if rest else "") for chain, *rest in rules),
    )


def removal(saved: Saved, chains: Collection[str], rules: Iterable[Rule] = ()) -> str:
    """Returns the commands that remove chains, the rules that lead to them, and other rules; empty if there are none.

    Chains that all pods share are removed with the last pod.
    """
    chains, gone = saved.chains & set(chains), set(rules)
    if not chains and not gone:
        return ""
    gone |= {rule for rule in saved.rules if rule.target in chains}
    left = tuple(rule for rule in saved.rules if rule not in gone and rule.chain not in chains)
    unused = _unused(saved._replace(rules=left))
    chains |= unused
    gone |= {rule for rule in left if rule.target in unused}
    lines = [f"-D {rule.chain} {rule.text}" for rule in saved.rules if rule in gone and rule.chain not in chains]
    lines += [f"-F {chain}" for chain in sorted(chains)] + [f"-X {chain}" for chain in sorted(chains)]
    return "\n".join([f"*{saved.table}", *lines, "COMMIT", ""])


def _unused(saved: Saved) -> frozenset[str]:
    """Returns shared chains of which no pod has a rule. An administrator's rules in CNI-ADMIN stay."""
    unused: set[str] = set()
    if DNAT in saved.chains and not saved.of(DNAT):
        unused |= {DNAT, MASQ, SETMARK}
    if SNAT in saved.chains and not saved.of(SNAT):
        unused.add(SNAT)
    admin = [rule.target for rule in saved.of(FORWARD) if rule.comment == _ADMIN]
    if FORWARD in saved.chains and len(admin) == len(saved.of(FORWARD)):
        unused |= {FORWARD, *ISOLATION, *(chain for chain in admin if not saved.of(chain))}
    return saved.chains & unused
