"""The priority levels and flow schemas of a new cluster, with upstream's names and numbers, and one more schema.

`exempt` and `catch-all` are mandatory: the server works with them even when they are deleted.
"""

from typing import Any

from podwire.kinds.stored import Object

AUTO_UPDATE = "apf.kubernetes.io/autoupdate-spec"
GROUP = "flowcontrol.apiserver.k8s.io"

EXEMPT, CATCH_ALL = "exempt", "catch-all"
MANDATORY = frozenset({EXEMPT, CATCH_ALL})

_EVERYBODY = ("system:unauthenticated", "system:authenticated")
_BY_USER, _BY_NAMESPACE = "ByUser", "ByNamespace"


def _queue(queues: int, hand: int) -> Object:
    return {"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}}


_LEVELS: tuple[tuple[str, int, int, Object], ...] = (
    (CATCH_ALL, 5, 0, {"type": "Reject"}),
    ("system", 30, 33, _queue(64, 6)),
    ("node-high", 40, 25, _queue(64, 6)),
    ("leader-election", 10, 0, _queue(16, 4)),
    ("workload-high", 40, 50, _queue(128, 6)),
    ("workload-low", 100, 90, _queue(128, 6)),
    ("global-default", 20, 50, _queue(128, 6)),
)
"""Name, shares, percentage that other levels may borrow, and what happens to requests above the limit."""
LEVEL_NAMES = frozenset({EXEMPT, *(name for name, *_ in _LEVELS)})


def _groups(*names: str) -> list[Object]:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _users(*names: str) -> list[Object]:
    return [{"kind": "User", "user": {"name": name}} for name in names]


def _system_accounts() -> list[Object]:
    return [{"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}}]


def _resources(verbs: list[str], groups: list[str], resources: list[str], *, cluster: bool) -> Object:
    rule = {"verbs": verbs, "apiGroups": groups, "resources": resources, "namespaces": ["*"]}
    return {**rule, "clusterScope": True} if cluster else rule


_ALL_RESOURCES = _resources(["*"], ["*"], ["*"], cluster=True)
_ALL_PATHS: Object = {"verbs": ["*"], "nonResourceURLs": ["*"]}


def _anything(subjects: list[Object]) -> Object:
    return {"subjects": subjects, "resourceRules": [_ALL_RESOURCES], "nonResourceRules": [_ALL_PATHS]}


def _components() -> list[Object]:
    """podwire's own: the controllers inside the API server, and the drivers and plugins of nodes."""
    names = ("gpu-driver", "local-path", "network-driver", "nri-network")
    drivers = [f"system:podwire:{name}" for name in names]
    return [*_users("system:podwire:controllers"), *_groups(*drivers)]


_LEASES = ["coordination.k8s.io"], ["leases"]
_PROBES: Object = {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}
_MANAGER, _SCHEDULER, _NODES = "system:kube-controller-manager", "system:kube-scheduler", "system:nodes"

_SCHEMAS: tuple[tuple[str, str, int, str, Object], ...] = (
    (EXEMPT, EXEMPT, 1, "", _anything(_groups("system:masters"))),
    ("probes", EXEMPT, 2, "", {"subjects": _groups(*_EVERYBODY), "nonResourceRules": [_PROBES]}),
    (
        "system-leader-election",
        "leader-election",
        100,
        _BY_USER,
        {
            "subjects": [*_users(_MANAGER, _SCHEDULER), *_system_accounts()],
            "resourceRules": [_resources(["get", "create", "update"], *_LEASES, cluster=False)],
        },
    ),
    (
        "system-node-high",
        "node-high",
        400,
        _BY_USER,
        {
            "subjects": _groups(_NODES),
            "resourceRules": [
                _resources(["*"], [""], ["nodes", "nodes/status"], cluster=True),
                _resources(["*"], *_LEASES, cluster=False),
            ],
        },
    ),
    ("system-nodes", "system", 500, _BY_USER, _anything(_groups(_NODES))),
    ("kube-controller-manager", "workload-high", 800, _BY_NAMESPACE, _anything(_users(_MANAGER))),
    ("kube-scheduler", "workload-high", 800, _BY_NAMESPACE, _anything(_users(_SCHEDULER))),
    ("podwire-components", "workload-high", 850, _BY_USER, _anything(_components())),
    ("kube-system-service-accounts", "workload-high", 900, _BY_NAMESPACE, _anything(_system_accounts())),
    ("service-accounts", "workload-low", 9000, _BY_USER, _anything(_groups("system:serviceaccounts"))),
    ("global-default", "global-default", 9900, _BY_USER, _anything(_groups(*_EVERYBODY))),
    (CATCH_ALL, CATCH_ALL, 10000, _BY_USER, _anything(_groups(*_EVERYBODY))),
)
"""Name, priority level, precedence (the lowest number that matches wins), how flows are distinguished, the rule."""


def priority_levels() -> list[Object]:
    exempt = {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}
    limited = [
        (
            name,
            {
                "type": "Limited",
                "limited": {
                    "nominalConcurrencyShares": shares,
                    "lendablePercent": lendable,
                    "limitResponse": response,
                },
            },
        )
        for name, shares, lendable, response in _LEVELS
    ]
    return [_object("PriorityLevelConfiguration", name, spec) for name, spec in ((EXEMPT, exempt), *limited)]


def flow_schemas() -> list[Object]:
    schemas = []
    for name, level, precedence, distinguisher, rule in _SCHEMAS:
        spec: dict[str, Any] = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence}
        if distinguisher:
            spec["distinguisherMethod"] = {"type": distinguisher}
        schemas.append(_object("FlowSchema", name, {**spec, "rules": [rule]}))
    return schemas


def _object(kind: str, name: str, spec: Object) -> Object:
    return {
        "kind": kind,
        "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec,
    }
