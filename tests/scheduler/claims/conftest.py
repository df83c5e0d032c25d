"""Devices, classes and claims in few words."""

import pytest

from podwire.objects import claims, device_classes, device_taints, nodes, slices
from podwire.scheduler.claims.cache import ClaimCache

DRIVER = "net.example.com"


def device(name, *, capacity=None, taints=(), shared=False, policies=None, **attributes):
    typed = {key.replace("__", "/"): _typed(value) for key, value in attributes.items()}
    policies = policies or {}
    amounts = {key: {"value": value} for key, value in (capacity or {}).items()}
    for key, policy in policies.items():
        amounts[key]["requestPolicy"] = policy
    made = {"name": name, "attributes": typed, "capacity": amounts, "taints": list(taints)}
    return {**made, "allowMultipleAllocations": True} if shared else made


def _typed(value):
    if isinstance(value, dict):
        return value
    return {"bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string": value}


def slice_of(node, devices, *, name="", driver=DRIVER, pool="", generation=1, count=1, **where):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": count},
            **(where or {"nodeName": node}),
            "devices": list(devices),
        },
    }


def class_of(name="nic", *selectors, config=()):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": selector}} for selector in selectors], "config": list(config)},
    }


def request(name="nic", *selectors, class_name="nic", **given):
    exactly = {
        "deviceClassName": class_name,
        "selectors": [{"cel": {"expression": selector}} for selector in selectors],
    }
    return {"name": name, "exactly": {**exactly, **given}}


def subrequest(name, *selectors, class_name="nic", **given):
    return {"name": name, "deviceClassName": class_name,
            "selectors": [{"cel": {"expression": selector}} for selector in selectors], **given}  # fmt: skip


def claim_of(name="nic", *requests, namespace="default", constraints=(), config=(), status=None):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {
            "devices": {
                "requests": list(requests) or [request()],
                "constraints": list(constraints),
                "config": list(config),
            }
        },
        "status": status or {},
    }


def allocated(*devices, node="n1", **more):
    results = [{"request": "nic", "driver": DRIVER, "pool": node, "device": device, **more} for device in devices]
    return {"allocation": {"devices": {"results": results}}}


def node_of(name="n1", **labels):
    return nodes.read({"metadata": {"name": name, "labels": labels}})


def book_of(*, slices_=(), classes=None, claims_=(), rules=()):
    claim_cache = ClaimCache()
    claim_cache.known = True
    for item in slices_:
        claim_cache.inventory.put_slice(slices.read(item))
    for class_ in classes if classes is not None else (class_of(),):
        claim_cache.classes[class_["metadata"]["name"]] = device_classes.read(class_)
    for item in claims_:
        claim_cache.put_claim(claims.read(item))
    for rule in rules:
        claim_cache.inventory.put_rule(device_taints.read_rule(rule))
    return claim_cache


class Words:
    """All of the above, for tests, which cannot import from here."""

    DRIVER = DRIVER
    allocated, claim_cache, claim, class_, device, node, request, slice, subrequest = map(
        staticmethod, (allocated, book_of, claim_of, class_of, device, node_of, request, slice_of, subrequest)
    )


@pytest.fixture(scope="session")
def words():
    return Words
