"""A small valid object of every built-in kind that is stored."""

import copy
from collections.abc import Mapping
from typing import Any

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

# Required fields are given here; the schema fills in the rest.

_CONTAINER = {"name": "c", "image": "nginx"}
_POD_SPEC = {"containers": [_CONTAINER]}
_LABELS = {"app": "web"}
_TEMPLATE = {"metadata": {"labels": _LABELS}, "spec": _POD_SPEC}
_SELECTED = {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}
_JOB = {"template": {"spec": {**_POD_SPEC, "restartPolicy": "Never"}}}
_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
_RBAC_SUBJECT = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
_TARGET = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
_ADMISSION_RULES = {"resourceRules": [_RULE]}
_WEBHOOK = {
    "name": "hook.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/"},
    "rules": [_RULE],
    "failurePolicy": "Ignore",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}

_GIVEN: dict[tuple[str, str], Mapping[str, Any]] = {
    ("", "pods"): {"spec": _POD_SPEC},
    ("", "podtemplates"): {"template": _TEMPLATE},
    ("", "replicationcontrollers"): {"spec": {"selector": _LABELS, "template": _TEMPLATE}},
    ("", "services"): {"spec": {"ports": [{"port": 80}]}},
    ("", "persistentvolumeclaims"): {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    ("", "events"): {"involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}},
    ("events.k8s.io", "events"): {
        "regarding": {"kind": "Pod", "name": "x", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "R",
        "action": "A",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
    },
    ("apps", "daemonsets"): {"spec": _SELECTED},
    ("apps", "deployments"): {"spec": _SELECTED},
    ("apps", "replicasets"): {"spec": _SELECTED},
    ("apps", "statefulsets"): {"spec": {**_SELECTED, "serviceName": "web"}},
    ("apps", "controllerrevisions"): {"revision": 1, "data": {"a": 1}},
    ("autoscaling", "horizontalpodautoscalers"): {"spec": {"maxReplicas": 3, "scaleTargetRef": _TARGET}},
    ("batch", "jobs"): {"spec": _JOB},
    ("batch", "cronjobs"): {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": _JOB}}},
    ("networking.k8s.io", "ingressclasses"): {"spec": {"controller": "example.com/ingress"}},
    ("networking.k8s.io", "servicecidrs"): {"spec": {"cidrs": ["10.77.0.0/24"]}},
    ("networking.k8s.io", "ipaddresses"): {"spec": {"parentRef": {"resource": "gateways", "name": "g"}}},
    ("rbac.authorization.k8s.io", "clusterrolebindings"): {"roleRef": _ROLE, "subjects": [_RBAC_SUBJECT]},
    ("rbac.authorization.k8s.io", "rolebindings"): {"roleRef": _ROLE, "subjects": [_RBAC_SUBJECT]},
    ("rbac.authorization.k8s.io", "clusterroles"): {
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    },
    ("rbac.authorization.k8s.io", "roles"): {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): {"spec": {"priorityLevelConfiguration": {"name": "system"}}},
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    ("coordination.k8s.io", "leases"): {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}},
    ("discovery.k8s.io", "endpointslices"): {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    },
    ("", "endpoints"): {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "samples", "singular": "sample", "kind": "Sample", "listKind": "SampleList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
        }
    },
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): {
        "spec": {
            "matchConstraints": _ADMISSION_RULES,
            "validations": [{"expression": "true"}],
        }
    },
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {
        "spec": {"policyName": "sample", "validationActions": ["Deny"]}
    },
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): {
        "spec": {
            "matchConstraints": _ADMISSION_RULES,
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}},
            ],
        }
    },
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): {"spec": {"policyName": "sample"}},
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    ("node.k8s.io", "runtimeclasses"): {"handler": "runc"},
    ("scheduling.k8s.io", "priorityclasses"): {"value": 10},
    ("resource.k8s.io", "deviceclasses"): {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    ("resource.k8s.io", "devicetaintrules"): {"spec": {"taint": {"key": "k", "effect": "NoSchedule"}}},
    ("resource.k8s.io", "resourceclaims"): {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "example.com"}}]}}
    },
    ("resource.k8s.io", "resourceclaimtemplates"): {
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "example.com"}}]}}}
    },
    ("resource.k8s.io", "resourceslices"): {
        "spec": {
            "driver": "example.com",
            "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}],
        }
    },
    ("resource.k8s.io/v1beta1", "resourceclaims"): {
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "example.com"}]}}
    },
    ("resource.k8s.io/v1beta1", "resourceclaimtemplates"): {
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "example.com"}]}}}
    },
    ("networking.k8s.io", "networkpolicies"): {"spec": {"podSelector": {}}},
    ("networking.k8s.io", "ingresses"): {
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}
    },
    ("policy", "poddisruptionbudgets"): {"spec": {"minAvailable": 1, "selector": {"matchLabels": _LABELS}}},
    ("", "limitranges"): {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    ("", "resourcequotas"): {"spec": {"hard": {"pods": "10"}}},
    ("", "persistentvolumes"): {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
        }
    },
    ("storage.k8s.io", "storageclasses"): {"provisioner": "example.com/p"},
    ("storage.k8s.io", "volumeattributesclasses"): {"driverName": "example.com", "parameters": {"a": "b"}},
    ("apiregistration.k8s.io", "apiservices"): {
        "spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    },
    ("storage.k8s.io", "csinodes"): {"spec": {"drivers": []}},
    ("storage.k8s.io", "csidrivers"): {"spec": {}},
    ("storage.k8s.io", "csistoragecapacities"): {"storageClassName": "fast"},
    ("storage.k8s.io", "volumeattachments"): {
        "spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
    },
}
_NAMES = {
    ("networking.k8s.io", "ipaddresses"): "10.1.2.3",
    ("apiextensions.k8s.io", "customresourcedefinitions"): "samples.example.com",
    ("apiregistration.k8s.io", "apiservices"): "v1.example.com",
}


def sample(kind: Kind) -> dict[str, Any]:
    """A small valid object of a built-in kind."""
    key = (kind.group, kind.resource)
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": _NAMES.get(key, "sample")}}
    given = _GIVEN.get((kind.api_version, kind.resource)) or _GIVEN.get(key, {})
    return copy.deepcopy({**body, **given})


STORED = [kind for kind in BUILTIN.all if "create" in kind.verbs and "get" in kind.verbs]
