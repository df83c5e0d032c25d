"""The definitions of PodRoute and PodMesh, as the API server takes them.

What a schema can tell is in the schema; rules between fields are in CEL, each rule with the field that it is
about. Lists and strings are bounded, so that the cost of the rules is.
"""

from collections.abc import Mapping
from typing import Any

from podwire.nriplugins.network.mesh.resource import LARGEST_ID, LARGEST_MARK, LARGEST_PORT, MOST_EXCLUDED
from podwire.nriplugins.network.resources import FAIL, GROUP, IGNORE, VERSION
from podwire.nriplugins.network.routes.resource import (
    LARGEST,
    LONGEST_INTERFACE,
    MOST_DESTINATIONS,
    MOST_ROUTES,
    MOST_SOURCES,
    OWN,
    SMALLEST_MTU,
)

Schema = dict[str, Any]

_LONGEST_CIDR, _LONGEST_ADDRESS, _LONGEST_NAME, _LONGEST_MESSAGE = 49, 45, 253, 1024
_KERNELS_TABLES = [253, 255]
_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL_KEY = f"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_WORD}$"
_LABEL_VALUE = f"^({_WORD})?$"


def _rule(rule: str, message: str, field: str = "") -> dict[str, str]:
    return {"rule": rule, "message": message} | ({"fieldPath": field} if field else {})


def _text(description: str, **rest: Any) -> Schema:
    return {"type": "string", "description": description, **rest}


def _integer(description: str, least: int, most: int | None = None, **rest: Any) -> Schema:
    """Without `most` the format bounds it. A bound of 2**63-1 does not work: kube-apiserver compares bounds as float64,
    in which that number is 2**63, and rejects every object."""
    bounds = {"minimum": least} | ({} if most is None else {"maximum": most})
    return {"type": "integer", "description": description, **bounds, "format": "int64", **rest}


def _object(description: str, properties: Mapping[str, Schema], *required: str, **rest: Any) -> Schema:
    demanded = {"required": list(required)} if required else {}
    return {"type": "object", "description": description, "properties": dict(properties), **demanded, **rest}


def _list(description: str, items: Schema, most: int, least: int = 0, kind: str = "set") -> Schema:
    bounds = {"maxItems": most} | ({"minItems": least} if least else {})
    return {"type": "array", "description": description, "items": items, "x-kubernetes-list-type": kind, **bounds}


_NETWORK_RULE = "isCIDR(self) && cidr(self) == cidr(self).masked()"
_NETWORK_MESSAGE = "must be a network in CIDR notation without bits beyond its prefix length, e.g. 10.9.8.0/24"


def _network(description: str) -> Schema:
    rules = [_rule(_NETWORK_RULE, _NETWORK_MESSAGE)]
    return _text(description, format="cidr", maxLength=_LONGEST_CIDR, **{"x-kubernetes-validations": rules})


def _address(description: str) -> Schema:
    rule = "isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback()"
    return _text(
        description,
        maxLength=_LONGEST_ADDRESS,
        anyOf=[{"format": "ipv4"}, {"format": "ipv6"}],
        **{"x-kubernetes-validations": [_rule(rule, "must be the IP address of another host")]},
    )


def _selector() -> Schema:
    """A label selector, as everywhere in the API."""
    key = {"type": "string", "minLength": 1, "maxLength": 317, "pattern": _LABEL_KEY}
    value = {"type": "string", "maxLength": 63, "pattern": _LABEL_VALUE}
    expression = _object(
        "A requirement on one label.",
        {
            "key": {**key, "description": "The label."},
            "operator": _text("How.", enum=["In", "NotIn", "Exists", "DoesNotExist"]),
            "values": _list("Of the label; for In and NotIn.", value, 64, kind="atomic"),
        },
        "key",
        "operator",
        **{
            "x-kubernetes-validations": [
                _rule(
                    "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                    "values are needed by In and NotIn, and by them only",
                    ".values",
                )
            ]
        },
    )
    return _object(
        "Which pods of this namespace. An empty one selects all; without one, pods that name this resource have it.",
        {
            "matchLabels": {
                "type": "object",
                "description": "Labels with these very values.",
                "additionalProperties": value,
                "maxProperties": 64,
            },
            "matchExpressions": _list("All of these.", expression, 64, kind="atomic"),
        },
        **{"x-kubernetes-map-type": "atomic"},
    )


def _common() -> dict[str, Schema]:
    policy = "What becomes of a pod that cannot have it: Fail, it does not run; Ignore, it runs without."
    return {
        "podSelector": _selector(),
        "failurePolicy": _text(policy, enum=[FAIL, IGNORE], default=FAIL),
    }


def _status() -> Schema:
    condition = _object(
        "One aspect of how it goes.",
        {
            "type": _text("Its name.", maxLength=316),
            "status": _text("Whether it holds.", enum=["True", "False", "Unknown"]),
            "reason": _text("Why, in one word.", maxLength=1024),
            "message": _text("Why, in a sentence.", maxLength=32768),
            "lastTransitionTime": _text("When the status last changed.", format="date-time"),
            "observedGeneration": _integer("What it is said of.", 0),
        },
        "type",
        "status",
    )
    failure = _object(
        "A pod that does not have all of it.",
        {
            "pod": _text("Its name.", maxLength=_LONGEST_NAME),
            "reason": _text("Broken, Missing, Conflict or Failed.", maxLength=64),
            "message": _text("Field and reason.", maxLength=_LONGEST_MESSAGE),
        },
        "pod",
        "reason",
    )
    node = _object(
        "How it goes on one node.",
        {
            "name": _text("The node.", maxLength=_LONGEST_NAME),
            "pods": _integer("How many pods it concerns there.", 0, 2**31 - 1),
            "failures": _list("Those that do not have all of it.", failure, 256, kind="atomic"),
        },
        "name",
    )
    return _object(
        "How it goes.",
        {
            "observedGeneration": _integer("What this is said of.", 0),
            "pods": _integer("How many pods it concerns.", 0, 2**31 - 1),
            "failed": _integer("How many of them do not have all of it.", 0, 2**31 - 1),
            "nodes": {**_list("By node.", node, 5000, kind="map"), "x-kubernetes-list-map-keys": ["name"]},
            "conditions": {**_list("Conditions.", condition, 16, kind="map"), "x-kubernetes-list-map-keys": ["type"]},
        },
    )


def _way() -> Schema:
    same_family = "!has(self.via) || self.destinations.all(each, each.contains(':') == self.via.contains(':'))"
    large_enough = "!has(self.mtu) || self.mtu >= 1280 || !self.destinations.exists(each, each.contains(':'))"
    on_link = "!has(self.onLink) || !self.onLink || has(self.via)"
    return _object(
        "How some destinations are reached.",
        {
            "destinations": _list("Networks.", _network("IPv4 or IPv6."), MOST_DESTINATIONS, 1),
            "via": _address("The gateway. Without one, the destinations are on the link itself."),
            "metric": _integer("Smaller is taken first; 0 is the kernel's default.", 0, LARGEST),
            "mtu": _integer("The largest packet on this way.", SMALLEST_MTU[4], 65535),
            "advmss": _integer("The segment size that TCP asks the other side for.", 1, 65535),
            "onLink": {
                "type": "boolean",
                "description": "The gateway is on the link although no address of the pod says so.",
            },
        },
        "destinations",
        **{
            "x-kubernetes-validations": [
                _rule(same_family, "must be of the same IP family as all destinations", ".via"),
                _rule(large_enough, "must be at least 1280 for IPv6 destinations", ".mtu"),
                _rule(on_link, "says something about via, and there is none", ".onLink"),
            ]
        },
    )


def _routes() -> Schema:
    own_table = "!has(self.sources) || size(self.sources) == 0 || (has(self.table) && self.table != 254)"
    source = _text(
        f"A network, or {OWN} for the addresses of each pod.",
        maxLength=_LONGEST_CIDR,
        anyOf=[{"format": "cidr"}, {"enum": [OWN]}],
        **{"x-kubernetes-validations": [_rule(f"self == '{OWN}' || ({_NETWORK_RULE})", _NETWORK_MESSAGE)]},
    )
    return _object(
        "Routes in the network namespaces of pods.",
        {
            **_common(),
            "interface": _text(
                "The pod's link by which the routes lead.",
                minLength=1,
                maxLength=LONGEST_INTERFACE,
                pattern=r"^[^/:%\s]+$",
                default="eth0",
            ),
            "table": _integer(
                "The routing table; 254 is the main one. Another is looked into by what `sources` says.",
                1,
                LARGEST,
                default=254,
                **{"not": {"enum": _KERNELS_TABLES}},
            ),
            "sources": _list("Packets from here look into the table; the longest prefix first.", source, MOST_SOURCES),
            "routes": _list("The routes.", _way(), MOST_ROUTES, 1, kind="atomic"),
        },
        "routes",
        **{
            "x-kubernetes-validations": [
                _rule(own_table, "need a table of their own: everything looks into the main one", ".sources")
            ]
        },
    )


def _exclusions(which: str) -> dict[str, Schema]:
    port = _integer("A port.", 1, LARGEST_PORT)
    return {
        "port": _integer("The proxy's port.", 1, LARGEST_PORT),
        "excludeCIDRs": _list(f"{which} that pass the proxy by.", _network("IPv4 or IPv6."), MOST_EXCLUDED),
        "excludePorts": _list("Destination ports that pass the proxy by.", port, MOST_EXCLUDED),
    }


def _proxy() -> Schema:
    one_each = "!has(self.addresses) || size(self.addresses) < 2 || "
    one_each += "self.addresses[0].contains(':') != self.addresses[1].contains(':')"
    mark = "The mark that a proxy of the node puts on what it opens in the pod's namespace."
    elsewhere = "Where it is when it is not in the pod's namespace; one address of each family. It gets outbound "
    elsewhere += "connections by DNAT and cannot see their original destinations."
    return _object(
        "By what the proxy's own connections are known: these are not led back to it.",
        {
            "uid": _integer("The user that it runs as.", 1, LARGEST_ID),
            "gid": _integer("The group that it runs as.", 1, LARGEST_ID),
            "mark": _integer(mark, 1, LARGEST_MARK),
            "addresses": _list(elsewhere, _address("IPv4 or IPv6."), 2),
        },
        **{"x-kubernetes-validations": [_rule(one_each, "at most one of each IP family", ".addresses")]},
    )


def _mesh() -> Schema:
    some = "has(self.inbound) || has(self.outbound)"
    known = "!has(self.outbound) || (has(self.proxy) && (has(self.proxy.uid) || has(self.proxy.gid) || "
    known += "has(self.proxy.mark) || (has(self.proxy.addresses) && size(self.proxy.addresses) > 0)))"
    here = "!has(self.inbound) || !has(self.proxy) || !has(self.proxy.addresses) || size(self.proxy.addresses) == 0"
    loops = "uid, gid or mark is required: without one the proxy's own connections would be led back to it"
    only_here = "what comes to the pod can only be redirected to a proxy in its namespace"
    number = _integer("A number.", 0, LARGEST_ID)
    outbound = {
        **_exclusions("Destinations"),
        "excludeUIDs": _list("Users whose connections pass the proxy by.", number, MOST_EXCLUDED),
        "excludeGIDs": _list("Groups whose connections pass the proxy by.", number, MOST_EXCLUDED),
    }
    return _object(
        "TCP connections of pods that go through a proxy.",
        {
            **_common(),
            "proxy": _proxy(),
            "inbound": _object("What others open to the pod.", _exclusions("Sources"), "port"),
            "outbound": _object("What the pod opens to others.", outbound, "port"),
        },
        **{
            "x-kubernetes-validations": [
                _rule(some, "inbound or outbound is required"),
                _rule(known, loops, ".proxy"),
                _rule(here, only_here, ".inbound"),
            ]
        },
    )


def _column(name: str, path: str, kind: str = "string", **rest: Any) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path, **rest}


_COLUMNS = [
    _column("Pods", ".status.pods", "integer"),
    _column("Failed", ".status.failed", "integer"),
    _column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    _column("Policy", ".spec.failurePolicy", priority=1),
    _column("Age", ".metadata.creationTimestamp", "date"),
]


def _definition(kind: str, plural: str, short: str, spec: Schema, *columns: Schema) -> dict[str, Any]:
    about = f"{kind}: {spec['description'][0].lower()}{spec['description'][1:]}"
    whole = _object(
        about,
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _status(),
        },
        "spec",
    )
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": whole},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [*columns, *_COLUMNS],
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List", "shortNames": [short]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


POD_ROUTE = _definition(
    "PodRoute",
    "podroutes",
    "proute",
    _routes(),
    _column("Interface", ".spec.interface"),
    _column("Table", ".spec.table", "integer"),
)
POD_MESH = _definition(
    "PodMesh",
    "podmeshes",
    "pmesh",
    _mesh(),
    _column("Inbound", ".spec.inbound.port", "integer"),
    _column("Outbound", ".spec.outbound.port", "integer"),
)
ALL: tuple[dict[str, Any], ...] = (POD_ROUTE, POD_MESH)
"""To be installed before the plugin runs."""
