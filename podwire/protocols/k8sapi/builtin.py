"""The built-in kinds of Kubernetes 1.36 as a table: one row a resource.

In `sub`, `name:verb/verb>Kind` is a subresource, with the kind it takes where that is not the resource's own.

This is the one table of kinds. Clients and servers share what it says (names, scope, verbs), and a client does not load
rules, defaults and schemas with it: those of a kind that has any are below `kinds/builtin`.
"""

from podwire.protocols.k8sapi.kinds import ALL_VERBS, Kind, Kinds, Subresource

_ELSEWHERE = {
    "Eviction": ("policy", "v1"),
    "Scale": ("autoscaling", "v1"),
    "TokenRequest": ("authentication.k8s.io", "v1"),
}
"""Group and version of subresource kinds that are not core/v1."""


def _kind(
    group: str,
    version: str,
    resource: str,
    kind: str,
    *,
    namespaced: bool = True,
    short: str = "",
    categories: str = "",
    verbs: str = "",
    sub: str = "",
) -> Kind:
    return Kind(
        group=group,
        version=version,
        resource=resource,
        kind=kind,
        namespaced=namespaced,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        verbs=tuple(verbs.split()) or ALL_VERBS,
        subresources=tuple(_subresource(part) for part in sub.split()),
    )


def _subresource(text: str) -> Subresource:
    name, _, rest = text.partition(":")
    verbs, _, kind = rest.partition(">")
    group, version = _ELSEWHERE.get(kind, ("", "v1" if kind else ""))
    return Subresource(name, tuple(verbs.split("/")), kind, group, version)


# fmt: off
BUILTIN = Kinds([
    _kind("", "v1", "bindings", "Binding", verbs="create"),
    _kind("", "v1", "componentstatuses", "ComponentStatus", namespaced=False, short="cs", verbs="get list"),
    _kind("", "v1", "configmaps", "ConfigMap", short="cm"),
    _kind("", "v1", "endpoints", "Endpoints", short="ep"),
    _kind("", "v1", "events", "Event", short="ev"),
    _kind("", "v1", "limitranges", "LimitRange", short="limits"),
    _kind("", "v1", "namespaces", "Namespace", namespaced=False, short="ns", verbs="create delete get list patch update watch", sub="finalize:update status:get/patch/update"),
    _kind("", "v1", "nodes", "Node", namespaced=False, short="no", sub="proxy:create/delete/get/patch/update>NodeProxyOptions status:get/patch/update"),
    _kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short="pvc", sub="status:get/patch/update"),
    _kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short="pv", sub="status:get/patch/update"),
    _kind("", "v1", "pods", "Pod", short="po", categories="all", sub="attach:create/get>PodAttachOptions binding:create>Binding ephemeralcontainers:get/patch/update eviction:create>Eviction exec:create/get>PodExecOptions log:get portforward:create/get>PodPortForwardOptions proxy:create/delete/get/patch/update>PodProxyOptions resize:get/patch/update status:get/patch/update"),
    _kind("", "v1", "podtemplates", "PodTemplate"),
    _kind("", "v1", "replicationcontrollers", "ReplicationController", short="rc", categories="all", sub="scale:get/patch/update>Scale status:get/patch/update"),
    _kind("", "v1", "resourcequotas", "ResourceQuota", short="quota", sub="status:get/patch/update"),
    _kind("", "v1", "secrets", "Secret"),
    _kind("", "v1", "serviceaccounts", "ServiceAccount", short="sa", sub="token:create>TokenRequest"),
    _kind("", "v1", "services", "Service", short="svc", categories="all", sub="proxy:create/delete/get/patch/update>ServiceProxyOptions status:get/patch/update"),
    _kind("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False, categories="api-extensions", sub="status:get/patch/update"),
    _kind("apps", "v1", "controllerrevisions", "ControllerRevision"),
    _kind("apps", "v1", "daemonsets", "DaemonSet", short="ds", categories="all", sub="status:get/patch/update"),
    _kind("apps", "v1", "deployments", "Deployment", short="deploy", categories="all", sub="scale:get/patch/update>Scale status:get/patch/update"),
    _kind("apps", "v1", "replicasets", "ReplicaSet", short="rs", categories="all", sub="scale:get/patch/update>Scale status:get/patch/update"),
    _kind("apps", "v1", "statefulsets", "StatefulSet", short="sts", categories="all", sub="scale:get/patch/update>Scale status:get/patch/update"),
    _kind("events.k8s.io", "v1", "events", "Event", short="ev"),
    _kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False, verbs="create"),
    _kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False, verbs="create"),
    _kind("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", verbs="create"),
    _kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False, verbs="create"),
    _kind("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False, verbs="create"),
    _kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, verbs="create"),
    _kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short="hpa", categories="all", sub="status:get/patch/update"),
    _kind("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short="hpa", categories="all", sub="status:get/patch/update"),
    _kind("batch", "v1", "cronjobs", "CronJob", short="cj", categories="all", sub="status:get/patch/update"),
    _kind("batch", "v1", "jobs", "Job", categories="all", sub="status:get/patch/update"),
    _kind("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False, short="csr", sub="approval:get/patch/update status:get/patch/update"),
    _kind("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False),
    _kind("networking.k8s.io", "v1", "ingresses", "Ingress", short="ing", sub="status:get/patch/update"),
    _kind("networking.k8s.io", "v1", "ipaddresses", "IPAddress", namespaced=False, short="ip"),
    _kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short="netpol"),
    _kind("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", namespaced=False, sub="status:get/patch/update"),
    _kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short="pdb", sub="status:get/patch/update"),
    _kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    _kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    _kind("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    _kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False),
    _kind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
    _kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    _kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short="sc"),
    _kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False, sub="status:get/patch/update"),
    _kind("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", namespaced=False, short="vac"),
    _kind("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False, categories="api-extensions"),
    _kind("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", namespaced=False, categories="api-extensions"),
    _kind("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False, categories="api-extensions"),
    _kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False, categories="api-extensions", sub="status:get/patch/update"),
    _kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False, categories="api-extensions"),
    _kind("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False, categories="api-extensions"),
    _kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False, short="crd crds", categories="api-extensions", sub="status:get/patch/update"),
    _kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short="pc"),
    _kind("coordination.k8s.io", "v1", "leases", "Lease"),
    _kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
    _kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    _kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False),
    _kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", sub="status:get/patch/update"),
    _kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    _kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False),
    _kind("resource.k8s.io", "v1beta2", "deviceclasses", "DeviceClass", namespaced=False),
    _kind("resource.k8s.io", "v1beta2", "resourceclaims", "ResourceClaim", sub="status:get/patch/update"),
    _kind("resource.k8s.io", "v1beta2", "resourceclaimtemplates", "ResourceClaimTemplate"),
    _kind("resource.k8s.io", "v1beta2", "resourceslices", "ResourceSlice", namespaced=False),
    _kind("resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule", namespaced=False, sub="status:get/patch/update"),
    _kind("resource.k8s.io", "v1beta1", "deviceclasses", "DeviceClass", namespaced=False),
    _kind("resource.k8s.io", "v1beta1", "resourceclaims", "ResourceClaim", sub="status:get/patch/update"),
    _kind("resource.k8s.io", "v1beta1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    _kind("resource.k8s.io", "v1beta1", "resourceslices", "ResourceSlice", namespaced=False),
    _kind("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False, sub="status:get/patch/update"),
    _kind("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False, sub="status:get/patch/update"),
])
# fmt: on
