"""The Service kube-system/kube-dns, and the EndpointSlice in which a server announces itself while it can answer."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from podwire.dns.watching import SERVICES, SLICES
from podwire.dns.zone import DNS_SERVICE
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

_log = logging.getLogger("podwire.dns")

MANAGER = "dns.podwire.dev"
METRICS_PORT = 9153
_NAMESPACE, _NAME = DNS_SERVICE
_LABELS = {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """How the server is reached."""

    server: str
    """The name of its EndpointSlice follows from this."""
    cluster_ip: str
    address: str
    port: int
    metrics_port: int

    @property
    def slice_name(self) -> str:
        return f"{_NAME}-{self.server}"


class Publisher:
    def __init__(self, api: Client, announcement: Announcement, pauses: Sequence[float] = (0.2, 0.5, 1, 2, 5)) -> None:
        self._api = api
        self._announcement = announcement
        self._pauses = pauses

    async def publish(self) -> None:
        """Creates the Service, if it is missing, and writes the slice. Retried until both succeed."""
        attempt = 0
        while True:
            try:
                await self._create_service()
                await self._write_slice()
            except (ApiError, ClientError) as error:
                _log.warning("cannot publish the DNS server", extra={"error": str(error)})
                await asyncio.sleep(self._pauses[min(attempt, len(self._pauses) - 1)])
                attempt += 1
            else:
                return

    async def withdraw(self) -> None:
        """Removes the slice: nobody is sent here any more."""
        try:
            await self._api.delete(SLICES, self._announcement.slice_name, _NAMESPACE)
        except (ApiError, ClientError) as error:
            _log.info("cannot withdraw the DNS server", extra={"error": str(error)})

    async def _create_service(self) -> None:
        try:
            await self._api.get(SERVICES, _NAME, _NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            try:
                await self._api.create(service(self._announcement))
            except ApiError as refusal:
                if refusal.code != 409:  # another server was faster
                    raise

    async def _write_slice(self) -> None:
        wanted = slice_of(self._announcement)
        try:
            await self._api.create(wanted)
        except ApiError as error:
            if error.code != 409:
                raise
            existing = await self._api.get(SLICES, self._announcement.slice_name, _NAMESPACE)
            if any(existing.get(field) != wanted[field] for field in ("addressType", "endpoints", "ports")):
                await self._api.delete(SLICES, self._announcement.slice_name, _NAMESPACE)
                await self._api.create(wanted)


def service(announcement: Announcement) -> Object:
    """Returns the Service; it has no selector, because servers announce themselves."""
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": announcement.port},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": announcement.port},
    ]
    scraped = {}
    if announcement.metrics_port:
        target = announcement.metrics_port
        ports.append({"name": "metrics", "port": METRICS_PORT, "protocol": "TCP", "targetPort": target})
        scraped = {"prometheus.io/port": str(METRICS_PORT), "prometheus.io/scrape": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE, "labels": _LABELS, "annotations": scraped},
        "spec": {"clusterIP": announcement.cluster_ip, "ports": ports, "type": "ClusterIP"},
    }


def slice_of(announcement: Announcement) -> Object:
    meta = {
        "name": announcement.slice_name,
        "namespace": _NAMESPACE,
        "labels": {
            "kubernetes.io/service-name": _NAME,
            "endpointslice.kubernetes.io/managed-by": MANAGER,
            "k8s-app": "kube-dns",
        },
    }
    ready = {"ready": True, "serving": True, "terminating": False}
    ports = [("dns", announcement.port, "UDP"), ("dns-tcp", announcement.port, "TCP")]
    ports += [("metrics", announcement.metrics_port, "TCP")] if announcement.metrics_port else []
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": meta,
        "addressType": "IPv6" if ":" in announcement.address else "IPv4",
        "endpoints": [{"addresses": [announcement.address], "conditions": ready}],
        "ports": [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports],
    }
