"""The table of all built-in kinds: one Strategy each."""

from collections.abc import Mapping

from podwire.kinds import api_machinery, autoscaling, coordination, disruption_budget, rbac, storage
from podwire.kinds.admission import strategy as admission
from podwire.kinds.apps import daemon_set, deployment, replica_set, stateful_set
from podwire.kinds.apps import other as apps
from podwire.kinds.batch import cron_job, job
from podwire.kinds.core import config, endpoints, event, namespace, node, quota
from podwire.kinds.core import other as core
from podwire.kinds.crds import strategy as crds
from podwire.kinds.dra import claim, resource_slice, taint_rule
from podwire.kinds.flowcontrol import strategy as flowcontrol
from podwire.kinds.networking import ingress, network_policy
from podwire.kinds.pod.strategy import POD
from podwire.kinds.service.strategy import SERVICE
from podwire.kinds.strategy import Strategy
from podwire.protocols.k8sapi.kinds import Kind

STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    (strategy.group, strategy.kind): strategy
    for strategy in (
        # core, discovery.k8s.io, events.k8s.io, node.k8s.io
        core.BINDING,
        core.COMPONENT_STATUS,
        config.CONFIG_MAP,
        endpoints.ENDPOINTS,
        endpoints.ENDPOINT_SLICE,
        event.CORE_EVENT,
        event.EVENT,
        quota.LIMIT_RANGE,
        namespace.NAMESPACE,
        node.NODE,
        POD,
        apps.POD_TEMPLATE_STRATEGY,
        replica_set.REPLICATION_CONTROLLER,
        quota.RESOURCE_QUOTA,
        node.RUNTIME_CLASS,
        config.SECRET,
        SERVICE,
        core.SERVICE_ACCOUNT,
        # apps, autoscaling, batch, policy, scheduling.k8s.io, coordination.k8s.io
        apps.CONTROLLER_REVISION,
        daemon_set.DAEMON_SET,
        deployment.DEPLOYMENT,
        replica_set.REPLICA_SET,
        stateful_set.STATEFUL_SET,
        autoscaling.AUTOSCALER,
        cron_job.CRON_JOB,
        job.JOB,
        disruption_budget.DISRUPTION_BUDGET,
        coordination.LEASE,
        coordination.PRIORITY_CLASS,
        # networking.k8s.io
        ingress.INGRESS,
        ingress.INGRESS_CLASS,
        ingress.IP_ADDRESS,
        ingress.SERVICE_CIDR,
        network_policy.NETWORK_POLICY,
        # rbac.authorization.k8s.io
        rbac.CLUSTER_ROLE,
        rbac.CLUSTER_ROLE_BINDING,
        rbac.ROLE,
        rbac.ROLE_BINDING,
        # persistent volumes and storage.k8s.io
        storage.CSI_DRIVER,
        storage.CSI_NODE,
        storage.CSI_STORAGE_CAPACITY,
        storage.PERSISTENT_VOLUME,
        storage.PERSISTENT_VOLUME_CLAIM,
        storage.STORAGE_CLASS,
        storage.VOLUME_ATTACHMENT,
        storage.VOLUME_ATTRIBUTES_CLASS,
        # resource.k8s.io
        claim.DEVICE_CLASS,
        claim.RESOURCE_CLAIM,
        claim.RESOURCE_CLAIM_TEMPLATE,
        resource_slice.RESOURCE_SLICE,
        taint_rule.DEVICE_TAINT_RULE,
        # admissionregistration.k8s.io, apiextensions.k8s.io
        admission.MUTATING_BINDING,
        admission.MUTATING_POLICY,
        admission.MUTATING_WEBHOOKS,
        admission.VALIDATING_BINDING,
        admission.VALIDATING_POLICY,
        admission.VALIDATING_WEBHOOKS,
        crds.CUSTOM_RESOURCE_DEFINITION,
        # about the API server itself
        api_machinery.API_SERVICE,
        flowcontrol.FLOW_SCHEMA,
        flowcontrol.PRIORITY_LEVEL,
        api_machinery.SIGNING_REQUEST,
        *api_machinery.REVIEWS,
    )
}
"""By group and kind; the versions of a kind share one."""


def strategy_of(kind: Kind) -> Strategy:
    """Returns the Strategy of a built-in kind."""
    return STRATEGIES[kind.group, kind.kind]
