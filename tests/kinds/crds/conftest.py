"""Definitions that people would write."""

import copy
from typing import Any

import pytest

from podwire.kinds.shape import Field, Report, Shape, TypeMismatch

CRON_TAB: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "crontabs.stable.example.com"},
    "spec": {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "crontabs",
            "singular": "crontab",
            "kind": "CronTab",
            "listKind": "CronTabList",
            "shortNames": ["ct"],
            "categories": ["all"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["cronSpec"],
                                "properties": {
                                    "cronSpec": {
                                        "type": "string",
                                        "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$",
                                    },
                                    "image": {"type": "string", "default": "busybox"},
                                    "replicas": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10},
                                    "policy": {"type": "string", "enum": ["Allow", "Forbid"]},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "labelSelector": {"type": "string"},
                                    "conditions": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "required": ["type"],
                                            "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                                        },
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["type"],
                                    },
                                },
                            },
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.labelSelector",
                    },
                },
                "selectableFields": [{"jsonPath": ".spec.policy"}],
                "additionalPrinterColumns": [
                    {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {
                        "name": "Ready",
                        "type": "string",
                        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                        "priority": 1,
                    },
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }
        ],
        "conversion": {"strategy": "None"},
    },
}


class MetaShape:
    """Takes a name, labels and finalizers, as the built-in ObjectMeta would."""

    _NAMES = ("name", "namespace", "labels", "finalizers", "creationTimestamp")

    def decode(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, dict):
            raise TypeMismatch(f"{path} must be an object")
        report.unknown += [f"{path}.{name}" for name in value if name not in self._NAMES]
        return {name: each for name, each in value.items() if name in self._NAMES}

    def field(self, name: str) -> Field | None:
        return Field(self) if name in self._NAMES else None

    @property
    def element(self) -> Shape | None:
        return None


@pytest.fixture
def cron_tab():
    return copy.deepcopy(CRON_TAB)


@pytest.fixture
def meta():
    return MetaShape()
