"""Keeps the endpoints of the Service `kubernetes` equal to the API servers that are alive, where several share a store.

Each server renews a Lease of its own, which has its address, and then writes the endpoints from all Leases that were
renewed lately. A server that was killed is gone from the endpoints after `LEASE_SECONDS`, by the clock of the others;
one that stops cleanly is gone at once.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Any

from podwire.interfaces import Clock
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError

_log = logging.getLogger("podwire.apiserver")

NAMESPACE, LABEL, ADDRESS = "kube-system", "podwire.dev/apiserver", "podwire.dev/address"
LEASE_SECONDS, RENEW_SECONDS = 10.0, 3.0
RELEASE_SECONDS = 2.0
SERVICE = "kubernetes"

Server = tuple[str, int]
"""Address and port."""


def _kind(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(kind)
    return found


LEASES = _kind("coordination.k8s.io/v1", "Lease")
ENDPOINTS = _kind("v1", "Endpoints")
SLICES = _kind("discovery.k8s.io/v1", "EndpointSlice")


def server_of(text: str) -> Server | None:
    """Reads an address and a port, separated by a space; None if they cannot be read."""
    address, _, port = text.partition(" ")
    try:
        return str(ip_address(address)), int(port)
    except ValueError:
        return None


def subsets(servers: Iterable[Server]) -> list[dict[str, Any]]:
    """Returns the subsets of Endpoints: one for each port."""
    by_port: dict[int, list[str]] = {}
    for address, port in sorted(set(servers)):
        by_port.setdefault(port, []).append(address)
    return [
        {"addresses": [{"ip": address} for address in addresses], "ports": [_port(port)]}
        for port, addresses in sorted(by_port.items())
    ]


def slices(servers: Iterable[Server]) -> list[dict[str, Any]]:
    """Returns the EndpointSlices: one for each port and address family."""
    groups: dict[tuple[int, str], list[str]] = {}
    for address, port in sorted(set(servers)):
        groups.setdefault((port, "IPv6" if ":" in address else "IPv4"), []).append(address)
    rows = []
    for number, ((port, family), addresses) in enumerate(sorted(groups.items())):
        name = SERVICE if number == 0 else f"{SERVICE}-{port}-{family.lower()}"
        labels = {"kubernetes.io/service-name": SERVICE, LABEL: "true"}
        rows.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": name, "namespace": "default", "labels": labels},
                "addressType": family,
                "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
                "ports": [_port(port)],
            }
        )
    return rows


def _port(number: int) -> dict[str, Any]:
    return {"name": "https", "port": number, "protocol": "TCP"}


class ServerEndpoints:
    """One API server among others."""

    def __init__(self, api: Client, clock: Clock, identity: str, own: Server) -> None:
        self._api, self._clock, self._own = api, clock, own
        self._name = f"podwire-apiserver-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        self._seen: dict[str, tuple[str, float]] = {}
        """The resourceVersion of each Lease, and since when: clocks of other machines do not matter."""

    async def keep(self) -> None:
        """Works until cancelled; then this server is not among the endpoints any more."""
        try:
            while True:
                try:
                    await self.renew()
                    await self.publish()
                except (ApiError, ClientError) as error:
                    _log.warning("cannot publish endpoints of API servers", extra={"error": str(error)})
                await asyncio.sleep(RENEW_SECONDS)
        finally:
            await self._release()

    async def renew(self) -> None:
        now = rfc3339_micro(self._clock.wall())
        metadata = {"annotations": {ADDRESS: f"{self._own[0]} {self._own[1]}"}, "labels": {LABEL: "true"}}
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": int(LEASE_SECONDS), "renewTime": now}
        try:
            await self._api.patch(LEASES, self._name, {"metadata": metadata, "spec": spec}, NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            named = {**metadata, "name": self._name, "namespace": NAMESPACE}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": named, "spec": spec}
            await self._api.create(lease)

    async def publish(self) -> None:
        """Writes the endpoints of all servers that are alive; deletes the Leases of others."""
        alive: list[Server] = []
        leases = (await self._api.list(LEASES, Scope(namespace=NAMESPACE, label_selector=f"{LABEL}=true"))).items
        now = self._clock.monotonic()
        self._seen = {name: seen for name, seen in self._seen.items() if name in _names(leases)}
        for lease in leases:
            name, version = lease["metadata"]["name"], lease["metadata"]["resourceVersion"]
            if self._seen.get(name, ("", 0.0))[0] != version:
                self._seen[name] = (version, now)
            if now - self._seen[name][1] > LEASE_SECONDS:
                await self._delete(LEASES, name, NAMESPACE)
            elif (server := server_of((lease["metadata"].get("annotations") or {}).get(ADDRESS, ""))) is not None:
                alive.append(server)
        await self._write(alive)

    async def _write(self, servers: Sequence[Server]) -> None:
        labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        metadata = {"name": SERVICE, "namespace": "default", "labels": labels}
        endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets(servers)}
        wanted = slices(servers)
        await self._put(ENDPOINTS, endpoints)
        for slice_ in wanted:
            await self._put(SLICES, slice_)
        scope = Scope(namespace="default", label_selector=f"{LABEL}=true")
        for stale in _names((await self._api.list(SLICES, scope)).items) - _names(wanted):
            await self._delete(SLICES, stale, "default")

    async def _put(self, kind: Kind, wanted: dict[str, Any]) -> None:
        """Writes an object if it differs. A conflict is left to the next time."""
        try:
            known = await self._api.get(kind, wanted["metadata"]["name"], "default")
        except ApiError as error:
            if error.code != 404:
                raise
            await self._api.create(wanted)
            return
        values = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind", "metadata")}
        labels = {**(known["metadata"].get("labels") or {}), **wanted["metadata"]["labels"]}
        if all(known.get(key) == value for key, value in values.items()) and known["metadata"].get("labels") == labels:
            return
        await self._api.replace({**known, **values, "metadata": {**known["metadata"], "labels": labels}})

    async def _delete(self, kind: Kind, name: str, namespace: str) -> None:
        try:
            await self._api.delete(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._delete(LEASES, self._name, NAMESPACE)
                await self.publish()
        except (ApiError, ClientError, TimeoutError) as error:
            _log.info("cannot remove own endpoint", extra={"error": str(error)})


def _names(objects: Iterable[Any]) -> set[str]:
    return {row["metadata"]["name"] for row in objects}
