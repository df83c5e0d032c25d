"""Decides which addresses and ports of pods belong to a Service. Pure."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from podwire.protocols.k8sapi.watch import Object

HEADLESS = "service.kubernetes.io/headless"
IPV4, IPV6 = "IPv4", "IPv6"


class _Port(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


class _Container(msgspec.Struct, rename="camel"):
    ports: tuple[_Port, ...] = ()
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""


class _Ip(msgspec.Struct):
    ip: str = ""


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _PodStatus(msgspec.Struct, rename={"pod_ips": "podIPs"}):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    pod_ips: tuple[_Ip, ...] = ()


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None


class PodAddresses(msgspec.Struct):
    """The parts of a pod that decide whether and how a Service reaches it."""

    metadata: _Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def ready(self) -> bool:
        return any(row.type == "Ready" and row.status == "True" for row in self.status.conditions)

    @property
    def ready_since(self) -> str:
        """When the pod became ready or unready; empty if it never was."""
        return next((row.last_transition_time or "" for row in self.status.conditions if row.type == "Ready"), "")

    def reachable(self, *, terminating: bool) -> bool:
        """Returns whether the pod has an address and has not ended; `terminating` includes pods that are ending."""
        if self.status.phase in ("Succeeded", "Failed") or not self.status.pod_ips:
            return False
        return terminating or not self.terminating

    def ips(self, family: str) -> list[str]:
        """Returns the pod's addresses of a family in canonical form."""
        return [ip for row in self.status.pod_ips if (ip := canonical(row.ip, family))]

    def reference(self) -> dict[str, str]:
        meta = self.metadata
        return {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}

    def hostname_in(self, service: Object) -> str:
        """Returns the name under which the pod is found below a Service; empty if it has none."""
        return self.spec.hostname if self.spec.subdomain == service["metadata"]["name"] else ""


read_pod = msgspec.json.Decoder(PodAddresses).decode


def canonical(text: str, family: str = "") -> str:
    """Returns an IP address in canonical form; empty if it is invalid or of another family."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    found = IPV6 if address.version == 6 else IPV4
    return "" if family not in ("", found) else str(address)


def families_of(service: Object) -> list[str]:
    """Returns the address families of a Service."""
    spec = service["spec"]
    if given := [family for family in spec.get("ipFamilies") or () if family in (IPV4, IPV6)]:
        return given
    address = spec.get("clusterIP") or ""
    if address and address != "None":
        return [IPV6 if ":" in address else IPV4]
    return [IPV4, IPV6]


def is_headless(service: Object) -> bool:
    return service["spec"].get("clusterIP") in (None, "", "None")


def ports_of(service: Object, pod: PodAddresses) -> list[dict[str, Any]]:
    """Returns the ports of a Service on a pod; a named port that the pod lacks is left out."""
    ports = []
    for port in service["spec"].get("ports") or ():
        number = _number(port, pod)
        if number is not None:
            row = {"name": port.get("name") or "", "port": number, "protocol": port.get("protocol") or "TCP"}
            if port.get("appProtocol"):
                row["appProtocol"] = port["appProtocol"]
            ports.append(row)
    return ports


def _number(port: Mapping[str, Any], pod: PodAddresses) -> int | None:
    target = port.get("targetPort", port.get("port"))
    if isinstance(target, int):
        return target
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    for container in (*pod.spec.containers, *sidecars):
        for candidate in container.ports:
            if (candidate.name, candidate.protocol) == (target, port.get("protocol") or "TCP"):
                return candidate.container_port
    return None


def endpoint_of(
    service: Object, pod: PodAddresses, family: str, zones: Mapping[str, str | None]
) -> dict[str, Any] | None:
    """Returns the endpoint of a pod in a slice of a family; None without an address of it.

    `ready` is for clients that know nothing of terminating endpoints: it is true for terminating pods only if the
    Service publishes addresses that are not ready.
    """
    addresses = pod.ips(family)
    if not addresses:
        return None
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    endpoint: dict[str, Any] = {
        "addresses": addresses,
        "conditions": {
            "ready": published or (pod.ready and not pod.terminating),
            "serving": pod.ready,
            "terminating": pod.terminating,
        },
        "targetRef": pod.reference(),
    }
    if pod.spec.node_name:
        endpoint["nodeName"] = pod.spec.node_name
    if zone := zones.get(pod.spec.node_name):
        endpoint["zone"] = zone
    if hostname := pod.hostname_in(service):
        endpoint["hostname"] = hostname
    if hints := _hints(service, endpoint):
        endpoint["hints"] = hints
    return endpoint


def _hints(service: Object, endpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the zone and node that should prefer an endpoint, by the Service's trafficDistribution."""
    wish = service["spec"].get("trafficDistribution")
    if wish not in ("PreferClose", "PreferSameZone", "PreferSameNode") or not endpoint["conditions"]["ready"]:
        return {}
    hints = {}
    if "zone" in endpoint:
        hints["forZones"] = [{"name": endpoint["zone"]}]
    if wish == "PreferSameNode" and "nodeName" in endpoint:
        hints["forNodes"] = [{"name": endpoint["nodeName"]}]
    return hints


def address_of(service: Object, pod: PodAddresses) -> dict[str, Any] | None:
    """Returns the address of a pod in an Endpoints object, of the Service's first family."""
    addresses = pod.ips(families_of(service)[0])
    if not addresses:
        return None
    address: dict[str, Any] = {"ip": addresses[0]}
    if hostname := pod.hostname_in(service):
        address["hostname"] = hostname
    if pod.spec.node_name:
        address["nodeName"] = pod.spec.node_name
    return {**address, "targetRef": pod.reference()}


MOST_ADDRESSES = 1000
"""Addresses of one Endpoints object; the others are left out, unready ones first."""


def subsets_of(service: Object, pods: Sequence[PodAddresses]) -> list[dict[str, Any]]:
    """Returns the subsets of an Endpoints object: addresses with the same ports are in one."""
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    groups: dict[bytes, dict[str, Any]] = {}
    for pod in pods:
        if not pod.reachable(terminating=published):
            continue
        address = address_of(service, pod)
        ports = sorted(ports_of(service, pod), key=_port_order)
        no_ports = not service["spec"].get("ports") and service["spec"].get("clusterIP") == "None"
        if address is None or not (ports or no_ports):
            continue
        group = groups.setdefault(
            msgspec.json.encode(ports), {"addresses": [], "notReadyAddresses": [], "ports": ports}
        )
        group["addresses" if published or pod.ready else "notReadyAddresses"].append(address)
    return canonical_subsets(list(groups.values()))


def _port_order(port: Mapping[str, Any]) -> tuple[str, int, str]:
    return port.get("name") or "", port.get("port") or 0, port.get("protocol") or "TCP"


def canonical_subsets(subsets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns subsets in one order, without empty parts, so that equal ones compare as equal."""
    ordered = []
    for subset in subsets:
        row: dict[str, Any] = {}
        for part in ("addresses", "notReadyAddresses"):
            if subset.get(part):
                row[part] = sorted(subset[part], key=lambda address: (address["ip"], str(address.get("targetRef"))))
        if subset.get("ports"):
            row["ports"] = sorted(
                ({**({"name": ""} if "name" not in port else {}), **port} for port in subset["ports"]), key=_port_order
            )
            row["ports"] = [{key: port[key] for key in port if key != "name" or port[key]} for port in row["ports"]]
        ordered.append(row)
    return sorted(ordered, key=lambda row: [_port_order(port) for port in row.get("ports", ())])


def truncated(subsets: Sequence[dict[str, Any]], most: int = MOST_ADDRESSES) -> tuple[list[dict[str, Any]], bool]:
    """Returns the subsets within the capacity of an Endpoints object, and whether addresses were left out.

    Ready addresses stay as far as possible; the subsets share what is left in proportion to their sizes.
    """
    ready = sum(len(subset.get("addresses", ())) for subset in subsets)
    unready = sum(len(subset.get("notReadyAddresses", ())) for subset in subsets)
    if ready + unready <= most:
        return list(subsets), False
    part, total, capacity = ("addresses", ready, most) if ready > most else ("notReadyAddresses", unready, most - ready)
    left, kept = capacity, []
    for subset in subsets:
        share = min(left, -(-len(subset.get(part, ())) * capacity // total))
        row = {**subset, part: list(subset.get(part, ()))[:share]}
        if part == "addresses":
            row.pop("notReadyAddresses", None)
        left -= len(row[part])
        kept.append({key: value for key, value in row.items() if value})
    return kept, True
