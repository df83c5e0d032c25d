"""Warnings about what is accepted and has no effect in this cluster."""

import msgspec
import pytest

from podwire.apiserver.admission.no_effect import (
    CONTAINER_SECURITY_FIELDS,
    ENV_SOURCES,
    KINDS,
    NETWORK_PLUGIN_GROUP,
    POD_FIELDS,
    POD_SECURITY_FIELDS,
    unread_fields,
)
from podwire.controllers.registry import ALL, acting
from podwire.nriplugins.network.kinds import ADMIN_KINDS
from podwire.nriplugins.network.resources import GROUP
from podwire.objects.containers import EnvSource, SecurityContext
from podwire.objects.pods import PodSecurityContext, PodSpec
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.builtin import BUILTIN
from tests.apiserver.support import CONFIGS, DEFINITIONS, PODS
from tests.eventually import eventually_async

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
NETWORKING = "/apis/networking.k8s.io/v1"
POLICIES = f"{NETWORKING}/namespaces/default/networkpolicies"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
POLICY = {"metadata": {"name": "deny"}, "spec": {"podSelector": {}}}


async def warnings(api, url, body):
    reply = await api.post(url, body)
    assert reply.status == 201, reply.raw
    return [text.removeprefix('299 - "').removesuffix('"') for text in reply.warnings]


def claim(storage_class="gold"):
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": storage_class}
    return {"metadata": {"generateName": "data-"}, "spec": spec}


async def test_a_kind_without_a_controller_causes_a_warning(api, deployment, config):
    assert await warnings(api, DEPLOYMENTS, deployment()) == [
        "no controller acts on deployments.apps in this cluster: no pods are created"
    ]
    assert await warnings(api, CONFIGS, config("a")) == []


async def events(api):
    return (await api.get("/api/v1/namespaces/default/events")).body["items"]


async def test_a_kind_without_a_controller_gets_an_event(api, deployment):
    made = await api.made(DEPLOYMENTS, deployment())
    [event] = await events(api)
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "NoController", 1)
    assert event["message"] == "no controller acts on deployments.apps in this cluster: no pods are created"
    metadata = made["metadata"]
    assert event["involvedObject"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": metadata["name"],
        "namespace": "default",
        "uid": metadata["uid"],
    }


async def test_a_creation_that_fails_or_is_dry_leaves_no_event(api, deployment):
    assert (await api.post(f"{DEPLOYMENTS}?dryRun=All", deployment())).status == 201
    assert await events(api) == []
    await api.made(DEPLOYMENTS, deployment())
    assert (await api.post(DEPLOYMENTS, deployment())).status == 409
    assert len(await events(api)) == 1


async def test_a_kind_that_a_controller_reconciles_causes_none(serve, deployment):
    api = await serve(reconciled=frozenset({("apps", "deployments")}))

    assert await warnings(api, DEPLOYMENTS, deployment()) == []


@pytest.mark.parametrize(("age", "warned"), [(5, False), (300, True)])
async def test_a_running_controller_manager_acts(api, deployment, age, warned):
    renewed = rfc3339(api.clock.wall() - age).replace("Z", ".000000Z")
    lease = {"holderIdentity": "host", "leaseDurationSeconds": 15, "renewTime": renewed, "acquireTime": renewed}
    await api.made(LEASES, {"metadata": {"name": "kube-controller-manager"}, "spec": lease})

    assert bool(await warnings(api, DEPLOYMENTS, deployment())) is warned
    assert await warnings(api, POLICIES, POLICY)


@pytest.mark.parametrize(("kinds", "warned"), [((), False), ((("batch", "jobs"),), True)])
async def test_our_own_controllers_may_run_in_another_process(serve, deployment, kinds, warned):
    api = await serve(reconciled=frozenset(kinds))
    renewed = rfc3339(api.clock.wall()).replace("Z", ".000000Z")
    lease = {"holderIdentity": "podwire_host", "leaseDurationSeconds": 15, "renewTime": renewed, "acquireTime": renewed}
    await api.made(LEASES, {"metadata": {"name": "kube-controller-manager"}, "spec": lease})

    assert bool(await warnings(api, DEPLOYMENTS, deployment())) is warned


async def test_the_network_plugin_enforces_policies(api, definition):
    assert await warnings(api, POLICIES, POLICY) == [
        "no controller acts on networkpolicies.networking.k8s.io in this cluster: no traffic is filtered"
    ]
    manifest = definition()
    manifest["metadata"]["name"] = f"widgets.{GROUP}"
    manifest["spec"]["group"] = GROUP
    await api.made(DEFINITIONS, manifest)

    async def unwarned():
        named = {**POLICY, "metadata": {"generateName": "deny-"}}
        return not await warnings(api, POLICIES, named)

    assert await eventually_async(unwarned)
    assert GROUP == NETWORK_PLUGIN_GROUP


async def test_a_driver_provisions_volumes(api):
    storage_class = {"metadata": {"name": "gold"}, "provisioner": "disk.example.com"}
    await api.made("/apis/storage.k8s.io/v1/storageclasses", storage_class)
    assert await warnings(api, CLAIMS, claim()) == [
        "no controller acts on persistentvolumeclaims in this cluster: no volume is provisioned or bound"
    ]

    await api.made("/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": "disk.example.com"}})

    assert await warnings(api, CLAIMS, claim()) == []


async def test_an_ingress_class_stands_for_a_controller(api):
    backend = {"service": {"name": "web", "port": {"number": 80}}}

    def ingress(name, **spec):
        return {"metadata": {"name": name}, "spec": {"defaultBackend": backend, **spec}}

    url = f"{NETWORKING}/namespaces/default/ingresses"
    assert await warnings(api, url, ingress("a", ingressClassName="web"))
    class_ = {"metadata": {"name": "web"}, "spec": {"controller": "example.com/x"}}
    await api.made(f"{NETWORKING}/ingressclasses", class_)

    assert await warnings(api, url, ingress("b", ingressClassName="web")) == []


async def test_fields_of_pods_that_the_kubelet_does_not_read_cause_warnings(api, pod):
    manifest = pod(securityContext={"seLinuxOptions": {"level": "s0"}, "seLinuxChangePolicy": "Recursive"})

    assert await warnings(api, PODS, manifest) == [
        f"spec.securityContext.{name}: has no effect, the kubelets of this cluster do not support it"
        for name in ("seLinuxChangePolicy", "seLinuxOptions")
    ]


async def test_fields_that_the_kubelet_reads_cause_no_warning(api, pod):
    device = {"name": "disk", "devicePath": "/dev/disk"}
    disk = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    container = {"name": "c", "image": "i", "volumeDevices": [device]}
    policy = {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}

    manifest = pod(containers=[container], volumes=[disk], securityContext=policy)

    assert await warnings(api, PODS, manifest) == []


async def test_another_kubelet_may_read_them(api, pod):
    await api.made("/api/v1/nodes", {"metadata": {"name": "n"}})
    info = {"kubeletVersion": "v1.36.0"}
    await api.patch("/api/v1/nodes/n/status", {"status": {"nodeInfo": info}})

    assert await warnings(api, PODS, pod(securityContext={"seLinuxOptions": {"level": "s0"}})) == []


def test_unread_fields_are_named_by_path():
    container = {
        "name": "c",
        "restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}],
        "securityContext": {"seLinuxOptions": {}, "windowsOptions": {}},
        "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fileKeyRef": {}}}],
    }
    spec = {
        "hostnameOverride": "x",
        "resources": {},
        "securityContext": {"windowsOptions": {}},
        "containers": [{}, container],
        "initContainers": [container],
    }
    unread = ("securityContext.seLinuxOptions", "securityContext.windowsOptions", "restartPolicyRules[1].action")
    fields = (*unread, "env[1].valueFrom.fileKeyRef")
    assert list(unread_fields(spec)) == [
        "spec.hostnameOverride",
        "spec.resources",
        "spec.securityContext.windowsOptions",
        *(f"spec.initContainers[0].{name}" for name in fields),
        *(f"spec.containers[1].{name}" for name in fields),
    ]


def test_the_tables_name_no_field_that_components_read():
    def read(part):
        return {field.encode_name for field in msgspec.structs.fields(part)}

    assert POD_FIELDS.isdisjoint(read(PodSpec))
    assert POD_SECURITY_FIELDS.isdisjoint(read(PodSecurityContext))
    assert CONTAINER_SECURITY_FIELDS.isdisjoint(read(SecurityContext))
    assert ENV_SOURCES.isdisjoint(read(EnvSource))


def test_the_tables_name_kinds_that_exist():
    served = {(kind.group, kind.resource) for kind in BUILTIN.all}
    custom = {(kind.group, kind.resource) for kind in ADMIN_KINDS}
    assert served | custom >= KINDS.keys()
    assert served >= acting(ALL)
    assert not acting(())


BALANCED = {"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}


async def test_a_load_balancer_without_a_pool_causes_a_warning_and_an_event(api):
    text = (
        "no controller acts on services of type LoadBalancer in this cluster: no address is allocated "
        "(podwire up --load-balancer-pool sets a pool)"
    )
    assert await warnings(api, "/api/v1/namespaces/default/services", BALANCED) == [text]
    assert [(event["reason"], event["message"]) for event in await events(api)] == [("NoController", text)]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"type": "ClusterIP"}, id="another type"),
        pytest.param({"loadBalancerClass": "example.com/lb"}, id="the class of somebody else"),
    ],
)
async def test_a_service_that_asks_for_no_load_balancer_of_ours_causes_no_warning(api, spec):
    service = {**BALANCED, "spec": {**BALANCED["spec"], **spec}}
    assert await warnings(api, "/api/v1/namespaces/default/services", service) == []


async def test_a_load_balancer_with_a_pool_causes_no_warning(serve):
    api = await serve(gives_balancer_addresses=True)
    assert await warnings(api, "/api/v1/namespaces/default/services", BALANCED) == []
