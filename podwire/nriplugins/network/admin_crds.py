"""The definitions of AdminNetworkPolicy and BaselineAdminNetworkPolicy (policy.networking.k8s.io/v1alpha1).

Peers and ports are those of the API's experimental channel, without domain names: nothing here resolves them, so they
are refused instead of accepted without effect.
"""

from typing import Any

Schema = dict[str, Any]

GROUP, VERSION = "policy.networking.k8s.io", "v1alpha1"
_APPROVED = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/network-policy-api/pull/30"}
"""A definition in a group of *.k8s.io names the decision that allowed it."""
_MOST_RULES = _MOST_PEERS = _MOST_PORTS = 100
_MOST_NETWORKS, _LONGEST_CIDR = 25, 43
_NO_NAMES = (
    "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes)) && has(self.ports) && "
    "self.ports.exists(port, has(port.namedPort)))"
)
_NO_NAMES_MESSAGE = "networks and nodes have no named ports: give port numbers, or peers that are pods"


def _object(description: str, properties: dict[str, Schema], *required: str, **rest: Any) -> Schema:
    demanded = {"required": [*required]} if required else {}
    return {"type": "object", "description": description, "properties": properties, **demanded, **rest}


def _one_of(description: str, properties: dict[str, Schema]) -> Schema:
    return _object(description, properties, minProperties=1, maxProperties=1)


def _list(description: str, items: Schema, least: int, most: int) -> Schema:
    bounds = {"maxItems": most} | ({"minItems": least} if least else {})
    return {"type": "array", "description": description, "items": items, **bounds}


def _text(description: str, **rest: Any) -> Schema:
    return {"type": "string", "description": description, **rest}


def _selector(description: str) -> Schema:
    values = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}
    expression = _object(
        "A requirement on one label.",
        {
            "key": _text("The label."),
            "operator": _text("In, NotIn, Exists or DoesNotExist."),
            "values": {**values, "description": "Of the label; for In and NotIn."},
        },
        "key",
        "operator",
    )
    return _object(
        description,
        {
            "matchLabels": {
                "type": "object",
                "description": "Labels with these very values.",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "type": "array",
                "description": "All of these.",
                "items": expression,
                "x-kubernetes-list-type": "atomic",
            },
        },
        **{"x-kubernetes-map-type": "atomic"},
    )


def _pods() -> dict[str, Schema]:
    """The two ways to select pods, of subjects and of peers."""
    both = {
        "namespaceSelector": _selector("Their namespaces; an empty one selects all."),
        "podSelector": _selector("The pods in these namespaces; an empty one selects all."),
    }
    return {
        "namespaces": _selector("All pods of these namespaces."),
        "pods": _object("Pods by their own labels and those of their namespaces.", both, *both),
    }


def _egress_peers() -> dict[str, Schema]:
    network = _text(
        "IPv4 or IPv6, e.g. 10.0.0.0/8.",
        maxLength=_LONGEST_CIDR,
        **{"x-kubernetes-validations": [{"rule": "isCIDR(self)", "message": "Invalid CIDR format provided"}]},
    )
    networks = _list("Addresses, whichever pod or node has them.", network, 1, _MOST_NETWORKS)
    return {
        **_pods(),
        "nodes": _selector("The addresses of these nodes; an empty one selects all nodes."),
        "networks": {**networks, "x-kubernetes-list-type": "set"},
    }


def _port() -> Schema:
    number = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}
    protocol = _text("TCP, UDP or SCTP.", default="TCP", enum=["TCP", "UDP", "SCTP"])
    one = {"protocol": protocol, "port": {**number, "description": "Its number."}}
    many = {
        "protocol": protocol,
        "start": {**number, "description": "The first port."},
        "end": {**number, "description": "The last port."},
    }
    ordered = {"rule": "self.start <= self.end", "message": "start must not be greater than end"}
    return _one_of(
        "A port of the pod that receives.",
        {
            "portNumber": _object("One port.", one, "port", "protocol"),
            "namedPort": _text("A port of a container, by its name."),
            "portRange": _object("Several ports.", many, "start", "end", **{"x-kubernetes-validations": [ordered]}),
        },
    )


def _rule(side: str, peers: dict[str, Schema], actions: list[str]) -> Schema:
    checks = [{"rule": _NO_NAMES, "message": _NO_NAMES_MESSAGE}] if side == "to" else []
    return _object(
        "What is done with connections. The first rule that matches one decides.",
        {
            "name": _text("Its name, in explanations.", maxLength=100),
            "action": _text("What is done.", enum=actions),
            side: _list("The other ends: any of these.", _one_of("A peer.", peers), 1, _MOST_PEERS),
            "ports": _list("Any of these; every port and protocol without them.", _port(), 1, _MOST_PORTS),
        },
        "action",
        side,
        **({"x-kubernetes-validations": checks} if checks else {}),
    )


def _spec(actions: list[str], **more: Schema) -> Schema:
    ingress, egress = (_rule(side, peers, actions) for side, peers in (("from", _pods()), ("to", _egress_peers())))
    return _object(
        "Ordered rules for connections of pods.",
        {
            **more,
            "subject": _one_of("The pods. Those on the host's network are not included.", _pods()),
            "ingress": _list("Rules for connections to these pods.", ingress, 0, _MOST_RULES),
            "egress": _list("Rules for connections of these pods to others.", egress, 0, _MOST_RULES),
        },
        "subject",
        *more,
    )


def _status() -> Schema:
    condition = _object(
        "One aspect of how it goes.",
        {
            "type": _text("Its name.", maxLength=316),
            "status": _text("Whether it holds.", enum=["True", "False", "Unknown"]),
            "reason": _text("Why, in one word.", maxLength=1024),
            "message": _text("Why, in a sentence.", maxLength=32768),
            "lastTransitionTime": _text("When the status last changed.", format="date-time"),
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        },
        "type",
        "status",
        "reason",
        "message",
        "lastTransitionTime",
    )
    conditions = {"type": "array", "items": condition}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return _object("How it goes.", {"conditions": {**conditions, **keyed}}, "conditions")


def _definition(kind: str, plural: str, short: str, spec: Schema, *columns: Schema, **rest: Any) -> Schema:
    whole = _object(
        f"{kind}: ordered rules of the administrator for the whole cluster.",
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _status(),
        },
        "metadata",
        "spec",
        **rest,
    )
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": whole},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [*columns, age],
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List", "shortNames": [short]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": _APPROVED},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


_PRIORITY = {
    "type": "integer",
    "format": "int32",
    "minimum": 0,
    "maximum": 1000,
    "description": "The policy with the lowest value decides first.",
}
_ONLY_DEFAULT = {
    "rule": "self.metadata.name == 'default'",
    "message": 'metadata.name must be "default": a cluster has only one',
}

ADMIN_NETWORK_POLICY = _definition(
    "AdminNetworkPolicy",
    "adminnetworkpolicies",
    "anp",
    _spec(["Allow", "Deny", "Pass"], priority=_PRIORITY),
    {"name": "Priority", "type": "string", "jsonPath": ".spec.priority"},
)
BASELINE_ADMIN_NETWORK_POLICY = _definition(
    "BaselineAdminNetworkPolicy",
    "baselineadminnetworkpolicies",
    "banp",
    _spec(["Allow", "Deny"]),
    **{"x-kubernetes-validations": [_ONLY_DEFAULT]},
)
ALL: tuple[Schema, ...] = (ADMIN_NETWORK_POLICY, BASELINE_ADMIN_NETWORK_POLICY)
