"""The addresses and ports that a service keeps or releases when it changes. Pure.

A client that replaces a service need not repeat what the server chose, and one that changes its type need not remove
fields that the new type does not use.
"""

from podwire.kinds.stored import Object

WITH_CLUSTER_IP = ("ClusterIP", "NodePort", "LoadBalancer")


def needs_address(spec: Object) -> bool:
    return spec.get("type", "ClusterIP") in WITH_CLUSTER_IP


def needs_node_ports(spec: Object) -> bool:
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True))


def needs_health_check(spec: Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def keep(spec: Object, before: Object) -> None:
    """Fills in what the client left out and the service already has."""
    if needs_address(spec) and needs_address(before):
        changed = spec.get("clusterIP") and spec["clusterIP"] != before.get("clusterIP")
        if changed and spec.get("clusterIPs") in (None, before.get("clusterIPs")):
            spec["clusterIPs"] = [spec["clusterIP"]]  # of a client that knows one address only
        for part in ("clusterIP", "clusterIPs"):
            if before.get(part) and not spec.get(part):
                spec[part] = before[part]
    if needs_node_ports(spec) and needs_node_ports(before):
        _keep_node_ports(spec.get("ports", []), before.get("ports", []))
    if needs_health_check(spec) and needs_health_check(before) and before.get("healthCheckNodePort"):
        spec.setdefault("healthCheckNodePort", before["healthCheckNodePort"])


def _keep_node_ports(ports: list[Object], before: list[Object]) -> None:
    """Keeps node ports by port name, unless another port already uses the number."""
    asked = {port["nodePort"] for port in ports if port.get("nodePort")}
    had = {port.get("name", ""): port["nodePort"] for port in before if port.get("nodePort")}
    for port in ports:
        number = had.get(port.get("name", ""))
        if not port.get("nodePort") and number and number not in asked:
            port["nodePort"] = number


def drop(service: Object, before: Object) -> None:
    """Removes fields that the new type does not use, unless the client changed them: then validation refuses them."""
    spec = service["spec"]
    if needs_address(before) and not needs_address(spec):
        _remove_unchanged(spec, before, "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    if needs_node_ports(before) and not needs_node_ports(spec):
        numbers = [port.get("nodePort") for port in spec.get("ports", [])]
        if numbers == [port.get("nodePort") for port in before.get("ports", [])]:
            for port in spec.get("ports", []):
                port.pop("nodePort", None)
    if needs_health_check(before) and not needs_health_check(spec):
        _remove_unchanged(spec, before, "healthCheckNodePort")
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        _remove_unchanged(spec, before, "allocateLoadBalancerNodePorts", "loadBalancerClass")
        service["status"] = {**service.get("status", {}), "loadBalancer": {}}
    if _is_external(before) and not _is_external(spec):
        _remove_unchanged(spec, before, "externalTrafficPolicy")


def _is_external(spec: Object) -> bool:
    kind = spec.get("type")
    return kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def _remove_unchanged(spec: Object, before: Object, *parts: str) -> None:
    for part in parts:
        if spec.get(part) == before.get(part):
            spec.pop(part, None)
