"""LimitRanger: defaults for containers; minimum, maximum and ratio for containers, pods and claims."""

import pytest

from tests.apiserver.support import PODS

RANGES = "/api/v1/namespaces/default/limitranges"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def limits(*items, name="limits"):
    return {"metadata": {"name": name}, "spec": {"limits": list(items)}}


def with_resources(pod, requests=None, limits=None, **spec):
    resources = {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}
    return pod(containers=[{"name": "c", "image": "x", "resources": resources}], **spec)


def claim(size):
    return {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


async def test_containers_get_default_requests_and_limits(api, pod):
    defaults = {"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}
    await api.made(RANGES, limits(defaults))

    init = {"name": "i", "image": "x", "resources": {"requests": {"cpu": "1m"}, "limits": {"memory": "1Mi"}}}
    made = await api.made(PODS, pod(initContainers=[init]))

    requests = {"cpu": "100m", "memory": "1Gi"}
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": requests,
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }
    assert made["spec"]["initContainers"][0]["resources"] == {
        "requests": {"cpu": "1m", "memory": "1Mi"},
        "limits": {"cpu": "500m", "memory": "1Mi"},
    }
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c; "
        "cpu limit for init container i"
    )


async def test_a_namespace_without_limit_ranges_changes_nothing(api, pod):
    await api.made("/api/v1/namespaces", {"metadata": {"name": "other"}})
    default = {"type": "Container", "default": {"cpu": "1"}}
    await api.made("/api/v1/namespaces/other/limitranges", limits(default))

    made = await api.made(PODS, pod())

    assert made["spec"]["containers"][0]["resources"] == {}
    assert "annotations" not in made["metadata"]


async def test_a_deleted_limit_range_no_longer_counts(api, pod):
    await api.made(RANGES, limits({"type": "Container", "default": {"cpu": "1"}}))
    await api.delete(f"{RANGES}/limits")

    made = await api.made(PODS, pod())

    assert made["spec"]["containers"][0]["resources"] == {}


CASES = {
    "minimum": (
        {"type": "Container", "min": {"cpu": "100m"}},
        {"requests": {"cpu": "50m"}, "limits": {"cpu": "1"}},
        "minimum cpu usage per Container is 100m, but request is 50m",
    ),
    "maximum": (
        {"type": "Container", "max": {"memory": "1Gi"}},
        {"limits": {"memory": "2Gi"}},
        "maximum memory usage per Container is 1Gi, but limit is 2Gi",
    ),
    "no limit for a pod": (
        {"type": "Pod", "max": {"cpu": "1"}},
        {"requests": {"cpu": "1"}},
        "maximum cpu usage per Pod is 1.  No limit is specified",
    ),
    "no request for a pod": (
        {"type": "Pod", "min": {"cpu": "1"}},
        {},
        "minimum cpu usage per Pod is 1.  No request is specified",
    ),
    "ratio": (
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
        {"requests": {"cpu": "100m"}, "limits": {"cpu": "250m"}},
        "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
    ),
    "no ratio": (
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
        {"requests": {"cpu": "100m"}},
        "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
    ),
    "several": (
        {"type": "Pod", "min": {"cpu": "1", "memory": "1Gi"}},
        {"requests": {"cpu": "1m", "memory": "1Mi"}},
        (
            "[minimum cpu usage per Pod is 1, but request is 1m, "
            "minimum memory usage per Pod is 1Gi, but request is 1Mi]"
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_pod_outside_of_the_limits_is_forbidden(api, pod, name):
    item, resources, words = CASES[name]
    await api.made(RANGES, limits(item))

    reply = await api.post(PODS, with_resources(pod, **resources))

    assert (reply.status, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == f'pods "web" is forbidden: {words}'


async def test_a_pod_counts_init_containers_sidecars_and_its_own_requests(api, pod):
    await api.made(RANGES, limits({"type": "Pod", "max": {"cpu": "3"}}))
    sidecar = {"name": "s", "image": "x", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}
    init = {"name": "i", "image": "x", "resources": {"limits": {"cpu": "2500m"}}}

    alone = await api.post(PODS, with_resources(pod, limits={"cpu": "1"}, initContainers=[init]))
    after_sidecar = with_resources(pod, limits={"cpu": "1"}, initContainers=[sidecar, init])
    after_sidecar["metadata"]["name"] = "other"
    together = await api.post(PODS, after_sidecar)

    assert alone.status == 201
    assert together.message.endswith("maximum cpu usage per Pod is 3, but limit is 3500m")


async def test_claims_are_limited_by_size(api):
    await api.made(
        RANGES, limits({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}})
    )

    small, large = await api.post(CLAIMS, claim("1Mi")), await api.post(CLAIMS, claim("6Gi"))

    forbidden = 'persistentvolumeclaims "data" is forbidden:'
    assert small.message == (f"{forbidden} minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi")
    assert large.message == (f"{forbidden} maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi")
    assert (await api.post(CLAIMS, claim("2Gi"))).status == 201


async def test_a_resize_is_checked(api, pod):
    await api.made(PODS, with_resources(pod, requests={"cpu": "100m"}, limits={"cpu": "200m"}))
    await api.made(RANGES, limits({"type": "Container", "max": {"cpu": "1"}}))
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}

    reply = await api.patch(
        f"{PODS}/web/resize", {"spec": {"containers": [{"name": "c", "resources": resources}]}}, "strategic"
    )
    labelled = await api.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}})

    assert reply.message.endswith("maximum cpu usage per Container is 1, but limit is 2")
    assert labelled.status == 200
