"""Parts that every object of a kind has, if only empty.

Upstream these are plain structs with numbers and names that are always written, so clients count on them: the Python
client refuses a PodDisruptionBudget whose status lacks `expectedPods`.
"""

from collections.abc import Mapping
from typing import Any

Parts = Mapping[str, Any]

_EMPTY: Parts = {}
_SPEC: Parts = {"spec": _EMPTY}
_BOTH: Parts = {"spec": _EMPTY, "status": _EMPTY}


def _status(spec: Parts = _EMPTY, **status: Any) -> Parts:
    return {"spec": spec, "status": status}


_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"
_NETWORKING = "networking.k8s.io"
_RESOURCE = "resource.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_FLOWCONTROL = "flowcontrol.apiserver.k8s.io"

_NODE_INFO = (
    "architecture bootID containerRuntimeVersion kernelVersion kubeProxyVersion kubeletVersion "
    "machineID operatingSystem osImage systemUUID"
)
_TEMPLATE: Parts = {"template": {"metadata": _EMPTY, "spec": _EMPTY}}

STRUCTS: Mapping[tuple[str, str], Parts] = {
    ("", "Event"): {"involvedObject": _EMPTY, "source": _EMPTY, "reportingComponent": "", "reportingInstance": ""},
    ("", "LimitRange"): _SPEC,
    ("", "Namespace"): _BOTH,
    ("", "Node"): _status(
        daemonEndpoints={"kubeletEndpoint": {"Port": 0}}, nodeInfo=dict.fromkeys(_NODE_INFO.split(), "")
    ),
    ("", "PersistentVolume"): _BOTH,
    ("", "PersistentVolumeClaim"): _status({"resources": _EMPTY}),
    ("", "Pod"): _BOTH,
    ("", "PodTemplate"): _TEMPLATE,
    ("", "ReplicationController"): _status(replicas=0),
    ("", "ResourceQuota"): _BOTH,
    ("", "Service"): _status(loadBalancer=_EMPTY),
    ("apiregistration.k8s.io", "APIService"): _BOTH,
    ("apps", "DaemonSet"): _status(
        {**_TEMPLATE, "updateStrategy": _EMPTY},
        currentNumberScheduled=0,
        desiredNumberScheduled=0,
        numberMisscheduled=0,
        numberReady=0,
    ),
    ("apps", "Deployment"): _status({**_TEMPLATE, "strategy": _EMPTY}),
    ("apps", "ReplicaSet"): _status(_TEMPLATE, replicas=0),
    ("apps", "StatefulSet"): _status({**_TEMPLATE, "updateStrategy": _EMPTY}, replicas=0, availableReplicas=0),
    ("events.k8s.io", "Event"): {"deprecatedSource": _EMPTY, "regarding": _EMPTY},
    ("autoscaling", "HorizontalPodAutoscaler"): _status({"scaleTargetRef": _EMPTY}, desiredReplicas=0),
    ("batch", "CronJob"): _status({"jobTemplate": {"metadata": _EMPTY, "spec": _TEMPLATE}}),
    ("batch", "Job"): _status(_TEMPLATE),
    ("certificates.k8s.io", "CertificateSigningRequest"): _BOTH,
    ("coordination.k8s.io", "Lease"): _SPEC,
    (_NETWORKING, "IPAddress"): _SPEC,
    (_NETWORKING, "Ingress"): _status(loadBalancer=_EMPTY),
    (_NETWORKING, "IngressClass"): _SPEC,
    (_NETWORKING, "NetworkPolicy"): {"spec": {"podSelector": _EMPTY}},
    (_NETWORKING, "ServiceCIDR"): _BOTH,
    ("policy", "PodDisruptionBudget"): _status(
        currentHealthy=0, desiredHealthy=0, disruptionsAllowed=0, expectedPods=0
    ),
    (_RBAC, "ClusterRoleBinding"): {"roleRef": _EMPTY},
    (_RBAC, "RoleBinding"): {"roleRef": _EMPTY},
    (_STORAGE, "CSIDriver"): _SPEC,
    (_STORAGE, "CSINode"): _SPEC,
    (_STORAGE, "VolumeAttachment"): _status({"source": _EMPTY}, attached=False),
    (_ADMISSION, "MutatingAdmissionPolicy"): _SPEC,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _SPEC,
    (_ADMISSION, "ValidatingAdmissionPolicy"): _BOTH,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _SPEC,
    (_RESOURCE, "DeviceClass"): _SPEC,
    (_RESOURCE, "DeviceTaintRule"): _status({"taint": _EMPTY}),
    (_RESOURCE, "ResourceClaim"): _status({"devices": _EMPTY}),
    (_RESOURCE, "ResourceClaimTemplate"): {"spec": {"metadata": _EMPTY, "spec": {"devices": _EMPTY}}},
    (_RESOURCE, "ResourceSlice"): {"spec": {"pool": _EMPTY}},
    (_FLOWCONTROL, "FlowSchema"): _status({"priorityLevelConfiguration": _EMPTY}),
    (_FLOWCONTROL, "PriorityLevelConfiguration"): _BOTH,
}


def fill(obj: dict[str, Any], parts: Parts) -> None:
    """Add to an object the parts it lacks; each part is the object's own."""
    for name, part in parts.items():
        if isinstance(part, Mapping):
            inner = obj.get(name)
            if inner is None:
                inner = obj[name] = {}
            if part:
                fill(inner, part)
        elif name not in obj:
            obj[name] = part
