"""The kinds that have rules of their own."""

from collections.abc import Mapping

from podwire.kinds.crds import definition
from podwire.kinds.validation import (
    admission_bindings,
    admission_policies,
    budgets,
    claims,
    config,
    endpoints,
    events,
    jobs,
    leases,
    limits,
    namespace,
    network_policy,
    node,
    not_executed,
    pod,
    rbac,
    service,
    slices,
    taint_rules,
    workloads,
)
from podwire.kinds.validation.rules import Rules

RULES: Mapping[tuple[str, str], Rules] = {
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Rules(definition.create, definition.update),
    ("", "Node"): Rules(node.create, node.update, {"status": node.update_status}),
    ("", "Pod"): Rules(
        pod.create,
        pod.update,
        {
            "ephemeralcontainers": pod.update_ephemeral_containers,
            "resize": pod.update_resources,
            "status": pod.update_status,
        },
    ),
    **admission_bindings.RULES,
    **admission_policies.RULES,
    **budgets.RULES,
    **claims.RULES,
    **config.RULES,
    **endpoints.RULES,
    **events.RULES,
    **jobs.RULES,
    **leases.RULES,
    **limits.RULES,
    **namespace.RULES,
    **network_policy.RULES,
    **not_executed.RULES,
    **rbac.RULES,
    **service.RULES,
    **slices.RULES,
    **taint_rules.RULES,
    **workloads.RULES,
}
