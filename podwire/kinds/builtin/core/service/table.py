"""The row of a Service."""

from typing import Any

from podwire.kinds.tables import (
    NONE,
    UNKNOWN,
    Json,
    age_of,
    elements,
    label_text,
    name_of,
    number,
    part,
    strings,
    text,
)


def row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    addresses = strings(spec, "clusterIPs") or [text(spec, "clusterIP")]
    return [
        name_of(obj),
        text(spec, "type"),
        addresses[0] or NONE,
        _external(spec, part(obj, "status")),
        ",".join(map(_service_port, elements(spec, "ports"))) or NONE,
        age_of(obj, now),
        label_text(spec, "selector"),
    ]


def _external(spec: Json, status: Json) -> str:
    kind, extra = text(spec, "type"), strings(spec, "externalIPs")
    if kind == "ExternalName":
        return text(spec, "externalName")
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(extra) or NONE
    if kind == "LoadBalancer":
        return ",".join([*balancers(status), *extra]) or "<pending>"
    return UNKNOWN


def balancers(status: Json) -> list[str]:
    entries = elements(part(status, "loadBalancer"), "ingress")
    return sorted({text(entry, "ip") or text(entry, "hostname") for entry in entries} - {""})


def _service_port(port: Json) -> str:
    node_port = number(port, "nodePort")
    outside = f":{node_port}" if node_port > 0 else ""
    return f"{number(port, 'port')}{outside}/{text(port, 'protocol', 'TCP')}"
