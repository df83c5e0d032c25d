"""ResourceQuota: writes that exceed a quota are refused, and what is used is recorded."""

import asyncio

import pytest

from podwire.apiserver.admission.plugins import AdmissionSettings
from podwire.kinds.quota.decision import LimitedResource
from tests.apiserver.support import CONFIGS, PODS

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
SERVICES = "/api/v1/namespaces/default/services"


@pytest.fixture
def quota():
    """Creates a quota whose status is known, as the controller would leave it."""

    async def make(api, name="quota", used=None, hard=None, **spec):
        await api.made(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard, **spec}})
        status = {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}
        reply = await api.patch(f"{QUOTAS}/{name}/status", {"status": status})
        assert reply.status == 200, reply.raw

    return make


async def used(api, name="quota"):
    return (await api.get(f"{QUOTAS}/{name}")).body["status"]["used"]


def requesting(pod, name="web", **resources):
    container = {"name": "c", "image": "x", "resources": resources}
    return pod(name, containers=[container])


async def test_a_quota_counts_objects_and_refuses_more(api, quota, config):
    await quota(api, hard={"count/configmaps": "2"})

    for name in ("a", "b"):
        await api.made(CONFIGS, config(name))
    reply = await api.post(CONFIGS, config("c"))

    assert (reply.status, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == (
        'configmaps "c" is forbidden: exceeded quota: quota, requested: count/configmaps=1, '
        "used: count/configmaps=2, limited: count/configmaps=2"
    )
    assert await used(api) == {"count/configmaps": "2"}


async def test_the_message_names_what_is_exceeded_only(api, quota, pod):
    await quota(api, hard={"requests.cpu": "1", "requests.memory": "1Gi", "pods": "5"}, used={"requests.cpu": "900m"})

    reply = await api.post(PODS, requesting(pod, requests={"cpu": "200m", "memory": "2Gi"}))

    assert reply.message == (
        'pods "web" is forbidden: exceeded quota: quota, requested: requests.cpu=200m,requests.memory=2Gi, '
        "used: requests.cpu=900m,requests.memory=0, limited: requests.cpu=1,requests.memory=1Gi"
    )


async def test_a_pod_must_specify_what_a_quota_limits(api, quota, pod):
    await quota(api, hard={"limits.cpu": "1", "requests.memory": "1Gi"})

    reply = await api.post(PODS, requesting(pod, requests={"cpu": "1"}))

    assert reply.message == (
        'pods "web" is forbidden: failed quota: quota: must specify limits.cpu for: c; requests.memory for: c'
    )


async def test_a_quota_without_known_usage_refuses(api, pod):
    hard = {"pods": "1"}
    await api.made(QUOTAS, {"metadata": {"name": "quota"}, "spec": {"hard": hard}})
    assert (await api.post(PODS, pod("early"))).status == 201
    await api.patch(f"{QUOTAS}/quota/status", {"status": {"hard": hard}})

    reply = await api.post(PODS, pod())

    assert reply.message == 'pods "web" is forbidden: status unknown for quota: quota, resources: pods'


async def test_a_pod_is_charged(api, quota, pod):
    await quota(api, hard={"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi", "secrets": "1"})

    await api.made(PODS, requesting(pod, requests={"cpu": "100m"}, limits={"memory": "256Mi"}))

    assert await used(api) == {"pods": "1", "requests.cpu": "100m", "limits.memory": "256Mi", "secrets": "0"}


async def test_quotas_with_scopes_count_only_what_is_in_them(api, quota, pod):
    await quota(api, "best-effort", hard={"pods": "1"}, scopes=["BestEffort"])
    await quota(api, "other", hard={"pods": "1"}, scopes=["NotBestEffort"])

    await api.made(PODS, pod("a"))
    refused = await api.post(PODS, pod("b"))
    await api.made(PODS, requesting(pod, "c", requests={"cpu": "1"}))

    assert "exceeded quota: best-effort, requested: pods=1, used: pods=1, limited: pods=1" in refused.message
    assert (await used(api, "best-effort"), await used(api, "other")) == ({"pods": "1"}, {"pods": "1"})


async def test_a_pod_that_gets_a_deadline_moves_to_another_scope(api, quota, pod):
    await api.made(PODS, pod())
    await quota(api, hard={"pods": "1"}, used={"pods": "1"}, scopes=["Terminating"])

    reply = await api.patch(f"{PODS}/web", {"spec": {"activeDeadlineSeconds": 5}})

    assert "exceeded quota: quota" in reply.message


async def test_a_refused_write_is_not_charged(api, quota, config):
    await quota(api, hard={"count/configmaps": "5"})
    await api.made(CONFIGS, config("a"))

    exists = await api.post(CONFIGS, config("a"))
    invalid = await api.post(CONFIGS, {"metadata": {"name": "b"}, "data": {"no/slash": ""}})
    dry = await api.post(f"{CONFIGS}?dryRun=All", config("c"))

    assert (exists.status, invalid.status, dry.status) == (409, 422, 201)
    assert await used(api) == {"count/configmaps": "1"}


async def test_two_quotas_are_charged_together_or_not_at_all(api, quota, config):
    await quota(api, "a", hard={"configmaps": "5"})
    await quota(api, "b", hard={"count/configmaps": "0"})

    reply = await api.post(CONFIGS, config("a"))

    assert reply.status == 403
    assert await used(api, "a") == {"configmaps": "0"}


async def test_services_are_charged_for_what_an_update_adds(api, quota):
    await quota(api, hard={"services": "1", "services.nodeports": "1"})
    service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    await api.made(SERVICES, service)

    within = await api.patch(f"{SERVICES}/web", {"spec": {"type": "NodePort"}})
    charged = await used(api)
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    beyond = await api.patch(f"{SERVICES}/web", {"spec": {"ports": ports}})

    assert (within.status, charged) == (200, {"services": "1", "services.nodeports": "1"})
    assert "exceeded quota: quota, requested: services.nodeports=1, used: services.nodeports=1" in beyond.message


async def test_a_service_that_a_quota_refuses_gets_no_address(api, quota):
    await quota(api, hard={"services": "0"})
    before = len((await api.get("/apis/networking.k8s.io/v1/ipaddresses")).body["items"])

    assert (await api.post(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})).status == 403
    assert len((await api.get("/apis/networking.k8s.io/v1/ipaddresses")).body["items"]) == before


async def test_a_resize_is_charged(api, quota, pod):
    await api.made(PODS, requesting(pod, requests={"cpu": "100m"}))
    await quota(api, hard={"requests.cpu": "300m"}, used={"requests.cpu": "100m"})

    def resized(cpu):
        resources = {"requests": {"cpu": cpu}}
        body = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        return api.patch(f"{PODS}/web/resize", body, "strategic")

    refused, accepted = await resized("400m"), await resized("300m")

    assert "exceeded quota: quota, requested: requests.cpu=300m, used: requests.cpu=100m" in refused.message
    assert accepted.status == 200
    assert await used(api) == {"requests.cpu": "300m"}


async def test_other_updates_of_a_pod_are_not_checked(api, quota, pod):
    await api.made(PODS, pod())
    await quota(api, hard={"requests.cpu": "1"})

    assert (await api.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_concurrent_creations_never_exceed_a_quota(racing, quota, config):
    await quota(racing, hard={"count/configmaps": "10"})

    replies = await asyncio.gather(*(racing.post(CONFIGS, config(f"c{number}")) for number in range(25)))

    statuses = [reply.status for reply in replies]
    assert (statuses.count(201), statuses.count(403)) == (10, 15)
    assert await used(racing) == {"count/configmaps": "10"}


async def test_other_namespaces_are_not_limited(api, quota, config):
    await quota(api, hard={"count/configmaps": "0"})

    assert (await api.post("/api/v1/namespaces/kube-public/configmaps", config("a"))).status == 201


async def test_events_are_never_counted(api, quota):
    await quota(api, hard={"count/events": "0"})
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default"},
        "reason": "a",
        "type": "Normal",
    }

    assert (await api.post("/api/v1/namespaces/default/events", event)).status == 201


async def test_limited_resources_need_a_covering_quota(serve, quota, pod):
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}
    limited = (
        LimitedResource(resource="pods", match_contains=("requests.example.com/",)),
        LimitedResource(resource="pods", match_scopes=(scope,)),
    )
    api = await serve(admission=AdmissionSettings(limited_resources=limited))

    device = await api.post(PODS, requesting(pod, limits={"example.com/gpu": "1"}))
    critical = await api.post(PODS, pod(priorityClassName="system-cluster-critical"))
    plain = await api.post(PODS, pod())
    expressions = {"matchExpressions": [scope]}
    await quota(api, hard={"pods": "1"}, scopeSelector=expressions)
    covered = await api.post(PODS, pod("covered", priorityClassName="system-cluster-critical"))

    assert device.message == 'pods "web" is forbidden: insufficient quota to consume: requests.example.com/gpu'
    assert critical.message == (
        'pods "web" is forbidden: insufficient quota to match these scopes: '
        "[{PriorityClass In [system-cluster-critical]}]"
    )
    assert (plain.status, covered.status) == (201, 201)


async def test_the_plugin_can_be_switched_off(serve, quota, config):
    api = await serve(admission=AdmissionSettings(disable=("ResourceQuota",)))
    await quota(api, hard={"count/configmaps": "0"})

    assert (await api.post(CONFIGS, config("a"))).status == 201
