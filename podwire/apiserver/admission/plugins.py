"""The table of admission plugins: upstream's names, order and defaults, and what implements each here."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from podwire.apiserver.admission.always_pull import AlwaysPullImages
from podwire.apiserver.admission.chain import AdmissionPlugin
from podwire.apiserver.admission.default_classes import DefaultIngressClass, DefaultStorageClass
from podwire.apiserver.admission.informers import Informers
from podwire.apiserver.admission.limit_ranges import LimitRanger
from podwire.apiserver.admission.namespaces import NamespaceLifecycle, Namespaces
from podwire.apiserver.admission.node_restriction import NodeRestriction
from podwire.apiserver.admission.owner_references import OwnerReferencesPermissionEnforcement
from podwire.apiserver.admission.pod_security.configuration import PodSecurityConfiguration
from podwire.apiserver.admission.pod_security.plugin import PodSecurity
from podwire.apiserver.admission.policies.mutating import MutatingPolicies
from podwire.apiserver.admission.policies.plugin import Policies
from podwire.apiserver.admission.priorities import Priorities
from podwire.apiserver.admission.quotas import ResourceQuotas
from podwire.apiserver.admission.runtime_classes import RuntimeClasses
from podwire.apiserver.admission.service_accounts import ServiceAccounts
from podwire.apiserver.admission.service_addresses import DenyServiceExternalIPs
from podwire.apiserver.admission.storage_protection import StorageObjectInUseProtection
from podwire.apiserver.admission.tolerations import (
    DefaultTolerations,
    ExtendedResourceToleration,
    TaintNodesByCondition,
)
from podwire.apiserver.admission.topology_labels import PodTopologyLabels
from podwire.apiserver.admission.volume_expansion import PersistentVolumeClaimResize
from podwire.apiserver.admission.webhooks.informer import WebhookInformer
from podwire.apiserver.identity.authorization import Authorizer
from podwire.apiserver.limits import Limits
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.interfaces import Clock
from podwire.kinds.quota.decision import LimitedResource


class BadPlugins(ValueError):
    """Plugins that cannot be switched as requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """Settings of an operator: which plugins run, and their configuration."""

    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    pod_security: PodSecurityConfiguration = field(default_factory=PodSecurityConfiguration)
    limited_resources: tuple[LimitedResource, ...] = ()
    """Resources that may not be used where no quota covers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Dependencies of the plugins."""

    store: Store
    clock: Clock
    limits: Limits
    namespaces: Namespaces
    informers: Informers
    policies: Policies
    mutating_policies: MutatingPolicies
    webhooks: WebhookInformer
    authorizer: Authorizer
    registry: Registry
    settings: AdmissionSettings


@dataclass(frozen=True, slots=True)
class Row:
    """One plugin; without `build` it is upstream's and not implemented here."""

    build: Callable[[Dependencies], AdmissionPlugin] | None = None
    default: bool = True
    always: bool = False
    """Runs as a part of the API server that cannot be switched."""


_OFF = Row(default=False)
_MISSING = Row()
_ALWAYS = Row(always=True)

PLUGINS: Mapping[str, Row] = {
    "AlwaysAdmit": _OFF,
    "NamespaceAutoProvision": _OFF,
    "NamespaceLifecycle": Row(lambda given: NamespaceLifecycle(given.namespaces)),
    "NamespaceExists": _OFF,
    "LimitPodHardAntiAffinityTopology": _OFF,
    "LimitRanger": Row(lambda given: LimitRanger(given.informers.limit_ranges)),
    "ServiceAccount": Row(lambda given: ServiceAccounts(given.store, given.limits.default_account_wait)),
    "NodeRestriction": Row(lambda given: NodeRestriction(given.store)),
    "TaintNodesByCondition": Row(
        lambda given: TaintNodesByCondition(every_node="TaintNodesByCondition" in given.settings.enable)
    ),
    "AlwaysPullImages": Row(lambda _given: AlwaysPullImages(), default=False),
    "ImagePolicyWebhook": _OFF,
    "PodSecurity": Row(lambda given: PodSecurity(given.store, given.namespaces, given.settings.pod_security)),
    "PodNodeSelector": _OFF,
    "Priority": Row(lambda given: Priorities(given.informers.priority_classes)),
    "DefaultTolerationSeconds": Row(lambda _given: DefaultTolerations()),
    "PodTolerationRestriction": _OFF,
    "EventRateLimit": _OFF,
    "ExtendedResourceToleration": Row(lambda _given: ExtendedResourceToleration(), default=False),
    "DefaultStorageClass": Row(lambda given: DefaultStorageClass(given.informers.storage_classes)),
    "StorageObjectInUseProtection": Row(lambda _given: StorageObjectInUseProtection()),
    "OwnerReferencesPermissionEnforcement": Row(
        lambda given: OwnerReferencesPermissionEnforcement(given.authorizer, given.registry), default=False
    ),
    "PersistentVolumeClaimResize": Row(lambda given: PersistentVolumeClaimResize(given.informers.storage_classes)),
    "RuntimeClass": Row(lambda given: RuntimeClasses(given.store)),
    "CertificateApproval": _ALWAYS,
    "CertificateSigning": _ALWAYS,
    "ClusterTrustBundleAttest": _MISSING,
    "CertificateSubjectRestriction": _ALWAYS,
    "DefaultIngressClass": Row(lambda given: DefaultIngressClass(given.informers.ingress_classes)),
    "DenyServiceExternalIPs": Row(lambda _given: DenyServiceExternalIPs(), default=False),
    "PodTopologyLabels": Row(lambda given: PodTopologyLabels(given.store)),
    "MutatingAdmissionPolicy": Row(lambda given: given.mutating_policies),
    "MutatingAdmissionWebhook": Row(lambda given: given.webhooks.mutating),
    "ValidatingAdmissionPolicy": Row(lambda given: given.policies),
    "ValidatingAdmissionWebhook": Row(lambda given: given.webhooks.validating),
    "ResourceQuota": Row(
        lambda given: ResourceQuotas(given.informers.quotas, given.store, given.clock, given.settings.limited_resources)
    ),
    "AlwaysDeny": _OFF,
}
"""In the order in which they run. The defaults are upstream's but for NodeRestriction, which is on as every installer
of Kubernetes switches it on; and TaintNodesByCondition does less unless it is enabled by name."""


def switched_on(enable: Iterable[str], disable: Iterable[str]) -> list[str]:
    """Returns the names of the plugins that run, in order; raises BadPlugins for what cannot be switched."""
    enable, disable = list(enable), list(disable)
    for option, names in (("enable", enable), ("disable", disable)):
        for name in names:
            if name not in PLUGINS:
                raise BadPlugins(f'{option}-admission-plugins plugin "{name}" is unknown')
    if both := sorted({*enable} & {*disable}):
        raise BadPlugins(f"{both} in enable-admission-plugins and disable-admission-plugins overlapped")
    if always := [name for name in disable if PLUGINS[name].always]:
        raise BadPlugins(f"disable-admission-plugins: {', '.join(always)} cannot be switched off")
    if missing := [name for name in enable if PLUGINS[name].build is None and not PLUGINS[name].always]:
        raise BadPlugins(f"enable-admission-plugins: {', '.join(missing)} not supported by podwire")
    return [
        name
        for name, row in PLUGINS.items()
        if row.build is not None and (name in enable or (row.default and name not in disable))
    ]


def build_plugins(given: Dependencies) -> list[AdmissionPlugin]:
    """Returns the plugins that are switched on, in order."""
    names = switched_on(given.settings.enable, given.settings.disable)
    return [build(given) for name in names if (build := PLUGINS[name].build) is not None]
