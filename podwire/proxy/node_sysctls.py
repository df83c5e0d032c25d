"""Sysctls of the node without which packets do not come back."""

import logging

from podwire.linux.errors import LinuxError, NoSuchSysctl
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.values import Path

_log = logging.getLogger("podwire.proxy")

BRIDGES = ("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables")
_SCTP = "net.netfilter.nf_conntrack_sctp_timeout_established"


def bridges_are_seen(netns: Path | None = None) -> bool:
    """Has bridges hand their frames to the rules; returns whether they do.

    A pod answers another one on the same bridge directly. If no rule sees that answer, it comes from the pod instead of
    the Service, and the client rejects it.
    """
    sysctls = KernelSysctls(netns)
    try:
        for name in BRIDGES:
            if sysctls.read(name) != "1":
                sysctls.write(name, "1")
    except NoSuchSysctl:
        return False
    except LinuxError as error:
        _log.warning("cannot have bridges hand frames to the rules", extra={"error": str(error)})
        return False
    return True


def has_sctp(netns: Path | None = None) -> bool:
    """Whether the kernel follows SCTP connections; without, a Service of SCTP cannot be served."""
    try:
        KernelSysctls(netns).read(_SCTP)
    except LinuxError:
        return False
    return True
