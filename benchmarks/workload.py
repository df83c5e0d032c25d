"""The objects that the benchmarks work with: a ConfigMap, and a pod as small ones are."""

import json
from typing import Any

NAMESPACE = "bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
STRATEGIC = "application/strategic-merge-patch+json"

CONFIG_MAP = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "map-%d", "labels": {"app": "bench"}},
        "data": {"a.conf": "listen 80;\nworkers 4;\n" * 10, "level": "info"},
    }
)


def pod(name: str) -> dict[str, Any]:
    """One container with a port, a probe, resources and a volume; some 1 KB as sent, 3 KB as stored."""
    container = {
        "name": "web",
        "image": "registry.example/web:1.25",
        "ports": [{"name": "http", "containerPort": 80}],
        "env": [{"name": "LEVEL", "value": "info"}, {"name": "NAME", "valueFrom": {"fieldRef": _NAME}}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench", "tier": "web"}},
        "spec": {
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": "web"}}],
            "terminationGracePeriodSeconds": 10,
        },
    }


_NAME = {"fieldPath": "metadata.name"}

STATUS_PATCH = json.dumps(
    {
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "Ready", "status": "False", "reason": "Bench", "message": "report %d"}],
        }
    }
)
"""Every one is another report, so that each is a write."""
