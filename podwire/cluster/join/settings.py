"""The settings that a joining machine reads from the cluster: the ConfigMap `kube-system/podwire-cluster`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from podwire.linux.values import Network

NAMESPACE, NAME = "kube-system", "podwire-cluster"
AUTO, ROUTES, VXLAN, WIREGUARD = "auto", "routes", "vxlan", "wireguard"
BACKENDS = (AUTO, ROUTES, VXLAN, WIREGUARD)
"""How packets go from the pods of one machine to those of another. `auto`: routes where both are on one segment, VXLAN
elsewhere."""


class BadSettings(ValueError):
    """Names the field of the ConfigMap that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    networks: tuple[Network, ...] = ()
    """Addresses inside the cluster: packets of pods to them keep their source."""
    backend: str = AUTO
    vni: int = 4096
    """Number of the cluster's VXLAN: clusters that share machines have different ones."""
    network_policy: bool = True


def to_data(settings: ClusterSettings) -> dict[str, str]:
    return {
        "clusterDNS": ",".join(settings.cluster_dns),
        "clusterDomain": settings.cluster_domain,
        "networks": ",".join(map(str, settings.networks)),
        "backend": settings.backend,
        "vni": str(settings.vni),
        "networkPolicy": "on" if settings.network_policy else "off",
    }


def from_data(data: Mapping[str, Any]) -> ClusterSettings:
    """Raises BadSettings."""
    defaults = ClusterSettings()
    backend = str(data.get("backend") or defaults.backend)
    if backend not in BACKENDS:
        raise BadSettings(f"backend: {backend!r} must be one of {', '.join(BACKENDS)}")
    try:
        field = "clusterDNS"
        dns = tuple(str(ip_address(text)) for text in _words(data.get(field)))
        field = "networks"
        networks = tuple(ip_network(text) for text in _words(data.get(field)))
        field = "vni"
        vni = int(data.get(field) or defaults.vni)
        if not 0 < vni < 1 << 24:
            raise ValueError("must be between 1 and 16777215")
    except ValueError as error:
        raise BadSettings(f"{field}: {error}") from error
    return ClusterSettings(
        cluster_dns=dns,
        cluster_domain=str(data.get("clusterDomain") or defaults.cluster_domain),
        networks=networks,
        backend=backend,
        vni=vni,
        network_policy=data.get("networkPolicy") != "off",
    )


def _words(text: object) -> list[str]:
    return [word.strip() for word in str(text or "").split(",") if word.strip()]
