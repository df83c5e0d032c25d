"""The files that a sandbox gives to its containers: hostname and resolv.conf."""

import platform
from pathlib import Path

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

HOST_RESOLV = Path("/etc/resolv.conf")


def write_pod_files(home: Path, config: pb.PodSandboxConfig) -> None:
    """Writes both in place: containers have them mounted."""
    hostname = config.hostname or platform.node()  # a pod on the node's network has the node's name
    (home / "hostname").write_text(f"{hostname}\n", encoding="utf-8")
    (home / "resolv.conf").write_text(resolv_conf(config), encoding="utf-8")


def resolv_conf(config: pb.PodSandboxConfig) -> str:
    """Returns resolv.conf by the kubelet's dns_config; without one, that of the host."""
    if not config.HasField("dns_config"):
        try:
            return HOST_RESOLV.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    dns = config.dns_config
    for word in (*dns.servers, *dns.searches, *dns.options):
        if any(letter.isspace() for letter in word):
            raise InvalidArgument(f"config.dns_config: {word!r} must not contain white space")
    lines = [f"nameserver {server}" for server in dns.servers]
    if dns.searches:
        lines.append(f"search {' '.join(dns.searches)}")
    if dns.options:
        lines.append(f"options {' '.join(dns.options)}")
    return "".join(f"{line}\n" for line in lines)
