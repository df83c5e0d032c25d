"""The table of plugins, and the small plugins of it."""

import pytest

from podwire.apiserver.admission.plugins import PLUGINS, AdmissionSettings, BadPlugins, switched_on
from podwire.apiserver.admission.runtime_classes import merge_tolerations
from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.support import PODS

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SERVICES = "/api/v1/namespaces/default/services"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def test_plugins_run_in_the_order_of_upstream():
    running = switched_on([], [])

    assert running[:3] == ["NamespaceLifecycle", "LimitRanger", "ServiceAccount"]
    assert running.index("PodSecurity") < running.index("Priority") < running.index("RuntimeClass")
    assert "AlwaysPullImages" not in running


def test_plugins_are_switched_by_name():
    running = switched_on(["AlwaysPullImages"], ["PodSecurity"])

    assert "PodSecurity" not in running
    assert running == [name for name in PLUGINS if name in running]
    assert "AlwaysPullImages" in running


@pytest.mark.parametrize(
    ("enable", "disable", "words"),
    [
        (["Nonsense"], [], 'enable-admission-plugins plugin "Nonsense" is unknown'),
        ([], ["Nonsense"], 'disable-admission-plugins plugin "Nonsense" is unknown'),
        (["Priority"], ["Priority"], "in enable-admission-plugins and disable-admission-plugins overlapped"),
        (["EventRateLimit"], [], "enable-admission-plugins: EventRateLimit not supported by podwire"),
    ],
)
def test_plugins_that_cannot_be_switched_are_refused(enable, disable, words):
    with pytest.raises(BadPlugins, match=words):
        switched_on(enable, disable)


async def test_always_pull_sets_every_pull_policy(serve, pod):
    api = await serve(admission=AdmissionSettings(enable=("AlwaysPullImages",)))
    volume = {"name": "v", "image": {"reference": "x", "pullPolicy": "Never"}}
    init = {"name": "i", "image": "x", "imagePullPolicy": "Never"}

    made = await api.made(PODS, pod(initContainers=[init], volumes=[volume]))

    spec = made["spec"]
    assert [container["imagePullPolicy"] for container in (*spec["initContainers"], *spec["containers"])] == [
        "Always",
        "Always",
    ]
    assert next(volume for volume in spec["volumes"] if volume["name"] == "v")["image"]["pullPolicy"] == "Always"


def storage_class(name, *, default=True, **fields):
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}, "provisioner": "example.com/x", **fields}


async def test_a_claim_gets_the_newest_default_storage_class(api):
    await api.made(STORAGE_CLASSES, storage_class("older"))
    api.clock.move(5)
    await api.made(STORAGE_CLASSES, storage_class("newer"))
    await api.made(STORAGE_CLASSES, storage_class("also-new"))
    await api.made(STORAGE_CLASSES, storage_class("plain", default=False))

    made = await api.made(CLAIMS, CLAIM)
    without = await api.made(CLAIMS, {"metadata": {"name": "none"}, "spec": {**CLAIM["spec"], "storageClassName": ""}})

    assert made["spec"]["storageClassName"] == "also-new"
    assert without["spec"]["storageClassName"] == ""


async def test_an_ingress_gets_the_default_class(api):
    marked = {"ingressclass.kubernetes.io/is-default-class": "true"}
    ingress_class = {"metadata": {"name": "usual", "annotations": marked}, "spec": {"controller": "example.com/x"}}
    await api.made("/apis/networking.k8s.io/v1/ingressclasses", ingress_class)
    backend = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}

    made = await api.made(INGRESSES, {"metadata": {"name": "web"}, "spec": backend})
    annotated = {"name": "old", "annotations": {"kubernetes.io/ingress.class": "other"}}
    other = await api.made(INGRESSES, {"metadata": annotated, "spec": backend})

    assert made["spec"]["ingressClassName"] == "usual"
    assert "ingressClassName" not in other["spec"]


@pytest.mark.parametrize(
    ("expandable", "phase", "words"),
    [
        (True, "Bound", ""),
        (True, "Pending", "spec is immutable after creation except resources.requests and"),
        (
            False,
            "Bound",
            (
                "only dynamically provisioned pvc can be resized and "
                "the storageclass that provisions the pvc must support resize"
            ),
        ),
    ],
)
async def test_a_claim_grows_if_its_class_allows_it(api, expandable, phase, words):
    await api.made(STORAGE_CLASSES, storage_class("usual", allowVolumeExpansion=expandable))
    await api.made(CLAIMS, {**CLAIM, "spec": {**CLAIM["spec"], "volumeName": "pv"}})
    await api.patch(f"{CLAIMS}/data/status", {"status": {"phase": phase}})

    reply = await api.patch(f"{CLAIMS}/data", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})

    if words:
        assert reply.status in (403, 422)
        assert words in reply.message
    else:
        assert reply.status == 200


@pytest.mark.parametrize(("ready", "tainted"), [(None, True), ("False", True), ("Unknown", True), ("True", False)])
async def test_a_node_that_its_kubelet_registers_is_tainted_unless_it_is_ready(serve, ready, tainted):
    api = await serve()
    kubelet = Certificate("system:node:a", ("system:nodes",))
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    reply = await api.post(
        "/api/v1/nodes", {"metadata": {"name": "a"}, "status": {"conditions": conditions}}, user=kubelet
    )
    assert reply.status == 201
    assert ("taints" in reply.body["spec"]) is tainted
    assert "taints" not in (await api.made("/api/v1/nodes", {"metadata": {"name": "made-by-hand"}}))["spec"]


async def test_all_new_nodes_are_tainted_where_that_is_switched_on(serve):
    api = await serve(admission=AdmissionSettings(enable=("TaintNodesByCondition",)))
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

    made = await api.made("/api/v1/nodes", {"metadata": {"name": "a"}})
    tainted = await api.made("/api/v1/nodes", {"metadata": {"name": "b"}, "spec": {"taints": [taint]}})

    assert made["spec"]["taints"] == tainted["spec"]["taints"] == [taint]


async def test_a_pod_tolerates_the_taint_of_its_extended_resources(serve, pod):
    api = await serve(admission=AdmissionSettings(enable=("ExtendedResourceToleration",)))
    resources = {"limits": {"example.com/gpu": "1", "cpu": "1"}}

    made = await api.made(PODS, pod(containers=[{"name": "c", "image": "x", "resources": resources}]))

    added = [toleration for toleration in made["spec"]["tolerations"] if toleration["effect"] == "NoSchedule"]
    assert added == [{"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


async def test_external_addresses_of_services_are_refused_where_that_is_switched_on(serve):
    api = await serve(admission=AdmissionSettings(enable=("DenyServiceExternalIPs",)))
    service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}}

    reply = await api.post(SERVICES, service)

    assert reply.message == 'services "web" is forbidden: Use of external IPs is denied by admission control'


def test_tolerations_that_another_one_includes_are_left_out():
    every = {"key": "k", "operator": "Exists"}
    one = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
    short = {"key": "n", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
    long = {**short, "tolerationSeconds": 20}
    other = {"key": "k", "value": "w", "effect": "NoExecute"}

    assert merge_tolerations([one, every]) == [every]
    assert merge_tolerations([every, one, every]) == [every]
    assert merge_tolerations([short, long]) == [long]
    assert merge_tolerations([one, other]) == [one, other]
    assert merge_tolerations([{"operator": "Exists"}, short, one]) == [{"operator": "Exists"}]
