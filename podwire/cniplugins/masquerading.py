"""Masquerading of a pod's addresses by the backend that its configuration asks for: nftables, or iptables."""

from collections.abc import Iterable
from functools import partial
from types import ModuleType

from podwire.cniplugins import nat, reference
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.netfilter import Netfilter, open_netfilter
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.skeleton import Call
from podwire.linux.nft.iptables import NOT_INSTALLED
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import IP
from podwire.protocols.cni.values import Object, taken

KEY = "ipMasqBackend"
BACKENDS = ("", "nftables", "iptables")


def check_backend(config: Object) -> None:
    """Raises CniError for an unknown backend."""
    backend = taken(config, KEY, str, "")
    if backend not in BACKENDS:
        details = f"{KEY}: {backend!r} must be one of {', '.join(BACKENDS[1:])}"
        raise CniError(Code.UNSUPPORTED_FIELD, f'unknown ipmasq backend "{backend}"', details)


def check_installed(config: Object) -> None:
    """Raises CniError if a configuration asks for iptables, and it is missing."""
    if iptables := _iptables(config):
        iptables.check_installed(KEY)


def check_usable(call: Call, netfilter: Netfilter) -> None:
    """Raises CniError or LinuxError if the host cannot masquerade."""
    check_installed(call.config.raw)
    if not _iptables(call.config.raw):
        nat.check_usable(netfilter.elements, nat.MASQUERADE_SETS[0], partial(nat.ruleset, ()))


def masquerade(call: Call, record: Record, ips: Iterable[IP]) -> None:
    if iptables := _iptables(record.config):
        iptables.masquerade(record, [ip.address for ip in ips])
    else:
        nat.masquerade(call, record, ips)


def end_masquerade(netfilter: Netfilter, record: Record) -> None:
    if record.is_lost or taken(record.config, "ipMasq", bool, False):
        nat.remove(netfilter.elements, nat.MASQUERADE_SETS, record.owns)
        if not record.is_lost and (iptables := _iptables(record.config)):  # without a record `detach_reference` does it
            iptables.end_masquerade(netfilter, record)


def hand_over(netfilter: Netfilter, record: Record, ips: Iterable[IP], variant: str) -> None:
    """Masquerades by the rules that the reference plugins would have made instead of ours."""
    if taken(record.config, "ipMasq", bool, False) and not _iptables(record.config):
        addresses = [ip.address for ip in ips]
        if variant == NOT_INSTALLED or taken(record.config, KEY, str, "") == "nftables":
            attachment = record.network, record.container_id, record.ifname
            reference.nft_rules.masquerade(netfilter, attachment, addresses)
        else:
            _iptables_backend().masquerade(record, addresses, variant)
        nat.remove(netfilter.elements, nat.MASQUERADE_SETS, record.owns)


def check_masqueraded(netfilter: Netfilter, record: Record, ips: Iterable[IP]) -> None:
    if iptables := _iptables(record.config):
        missing = iptables.check_masquerade(netfilter, record, [ip.address for ip in ips])
        expect(missing is None, f"{missing} is not masqueraded")
    else:
        nat.check_masqueraded(netfilter, record, ips)


def is_masqueraded(call: Call, record: Record, ips: Iterable[IP]) -> bool:
    with open_netfilter(call) as netfilter:
        try:
            check_masqueraded(netfilter, record, ips)
        except CniError:
            return False
    return True


def _iptables(config: Object) -> ModuleType | None:
    """Returns the module for iptables if a configuration asks for it."""
    return _iptables_backend() if taken(config, KEY, str, "") == "iptables" else None


def _iptables_backend() -> ModuleType:
    from podwire.cniplugins import iptables_backend  # noqa: PLC0415 - most hosts never need it

    return iptables_backend
