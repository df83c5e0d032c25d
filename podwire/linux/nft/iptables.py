"""Rules of iptables as the text of `iptables-save` and `iptables-restore`, for each of its two variants.

`nft` keeps its rules in nft tables (`ip nat`, `ip filter`, …), `legacy` in tables of their own. Both can be in use.
"""

import errno
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.nft.chains import KernelChains
from podwire.linux.proc.processes import Finished, run
from podwire.linux.proc.stopwatch import step

FAMILIES = ("ip", "ip6")
NOT_INSTALLED = ""
"""In place of a variant."""
_PROGRAMS = {"ip": "iptables", "ip6": "ip6tables"}
_LEGACY_TABLES = {"ip": "/proc/thread-self/net/ip_tables_names", "ip6": "/proc/thread-self/net/ip6_tables_names"}
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_SECONDS = 20.0


class Iptables(NamedTuple):
    """One table of one family in one variant, in the network namespace of the calling thread."""

    family: str
    table: str
    variant: str

    def save(self) -> str:
        """Returns all chains and rules. Raises Unsupported without the program, BadRuleset with its message."""
        return self._run("save", "-t", self.table).stdout.decode("utf-8", "replace")

    def apply(self, commands: str) -> None:
        """Hands commands to `iptables-restore`: all or none. Raises as `save`."""
        arguments = ("-w", "10") if self.variant == "legacy" else ()
        self._run("restore", "--noflush", *arguments, stdin=commands)

    def _run(self, action: str, *arguments: str, stdin: str = "") -> Finished:
        family = _PROGRAMS[self.family]
        for program in (f"{family}-{self.variant}-{action}", f"{family}-{action}"):
            try:
                with step("iptables"):
                    done = run((program, *arguments), env=_ENVIRONMENT, stdin=stdin.encode(), deadline=_SECONDS)
            except errors.NoSuchPath:
                continue
            if done.code != 0:
                message = done.stderr.decode("utf-8", "replace").strip()
                raise errors.BadRuleset(errno.EINVAL, f"run {program}", message)
            return done
        raise errors.Unsupported(errno.ENOENT, f"run {family}-{action}", "it is not installed")


def host_variant() -> str:
    """Returns the variant that `iptables` is on this host, NOT_INSTALLED without it."""
    try:
        done = run(("iptables", "--version"), env=_ENVIRONMENT, deadline=_SECONDS)
    except errors.NoSuchPath:
        return NOT_INSTALLED
    return "nft" if b"nf_tables" in done.stdout else "legacy"


def tables_with(chains: KernelChains, table: str, chain: str) -> list[Iptables]:
    """Returns the tables that have a chain; those of the legacy variant that may have it."""
    found = []
    for family in FAMILIES:
        if chains.exists(family, table, chain):
            found.append(Iptables(family, table, "nft"))
        if _is_legacy(family, table):
            found.append(Iptables(family, table, "legacy"))
    return found


def _is_legacy(family: str, table: str) -> bool:
    try:
        with open(_LEGACY_TABLES[family], encoding="ascii") as file:
            return table in file.read().split()
    except OSError:
        return False
