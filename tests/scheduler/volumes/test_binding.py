"""Volumes of a pod are written and bound before the pod is, on a real API server with its controllers."""

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.objects.persistent_volumes import SELECTED_NODE
from podwire.scheduler.kinds import VOLUME_CLAIMS, VOLUMES
from tests.controllers.volumes.objects import claim, storage_class, volume
from tests.eventually import eventually_async
from tests.scheduler.conftest import Cluster

LATER = {"volumeBindingMode": "WaitForFirstConsumer"}


@pytest.fixture
async def storing(tmp_path):
    """A server with its controllers, and a scheduler."""
    async with running(Options(data_dir=tmp_path, port=0, store_url="memory://")) as server:
        made = Cluster(server)
        made.limits = {"initial_backoff": 0.05, "max_backoff": 0.2}
        async with made.scheduler():
            yield made


def uses(name):
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def on(host):
    row = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}}


async def test_a_pod_waits_for_its_claim_and_goes_where_the_volume_is(storing):
    await storing.node("n1")
    await storing.node("n2")
    await storing.pod("web", **uses("data"))
    await storing.refused("web", 'persistentvolumeclaim "data" not found')
    await storing.api.create(claim("data"))
    await storing.refused("web", "pod has unbound immediate PersistentVolumeClaims")
    await storing.api.create(volume("disk", **on("n2")))
    assert (await storing.placed("web"))["spec"]["nodeName"] == "n2"


async def test_a_static_volume_is_bound_with_the_pod(storing):
    await storing.node("n1")
    await storing.api.create(storage_class("static", "kubernetes.io/no-provisioner", **LATER))
    await storing.api.create(claim("data", storageClassName="static"))
    await storing.pod("web", **uses("data"))
    await storing.refused("web", "node(s) didn't find available persistent volumes to bind")
    await storing.api.create(volume("disk", storageClassName="static", **on("n1")))
    await storing.placed("web")
    found = await storing.api.get(VOLUME_CLAIMS, "data", "default")
    assert (found["spec"]["volumeName"], found["status"]["phase"]) == ("disk", "Bound")


async def test_a_directory_is_provisioned_on_the_node_that_the_pod_gets(storing):
    await storing.node("n1", labels={"disk": "ssd"})
    await storing.node("n2")
    await storing.api.create(storage_class("local", "podwire.dev/local-path", **LATER))
    await storing.api.create(claim("data", storageClassName="local"))
    await storing.pod("web", nodeSelector={"disk": "ssd"}, **uses("data"))
    assert (await storing.placed("web"))["spec"]["nodeName"] == "n1"
    found = await storing.api.get(VOLUME_CLAIMS, "data", "default")
    assert found["metadata"]["annotations"][SELECTED_NODE] == "n1"
    made = await storing.api.get(VOLUMES, found["spec"]["volumeName"])
    assert made["spec"]["nodeAffinity"] == on("n1")["nodeAffinity"]
    await storing.pod("elsewhere", nodeSelector={"kubernetes.io/hostname": "n2"}, **uses("data"))
    await storing.refused("elsewhere", "1 node(s) didn't match PersistentVolume's node affinity")


async def test_a_provisioner_that_gives_up_makes_the_pod_be_decided_on_again(storing):
    await storing.node("n1")
    await storing.api.create(storage_class("remote", **LATER))
    await storing.api.create(claim("data", storageClassName="remote"))
    await storing.pod("web", **uses("data"))

    async def selected():
        found = await storing.api.get(VOLUME_CLAIMS, "data", "default")
        return found if SELECTED_NODE in found["metadata"].get("annotations", {}) else None

    await eventually_async(selected)
    patch = {"metadata": {"annotations": {SELECTED_NODE: None}}}
    await storing.api.patch(VOLUME_CLAIMS, "data", patch, "default")
    text = 'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"'
    await storing.events("FailedScheduling", done=lambda event: text in event["note"])
    await eventually_async(selected)


async def test_a_pod_that_is_deleted_while_its_volume_is_provisioned_frees_its_node(storing):
    await storing.node("n1", cpu="1")
    await storing.api.create(storage_class("remote", **LATER))
    await storing.api.create(claim("data", storageClassName="remote"))
    await storing.pod("web", requests={"cpu": "1"}, **uses("data"))

    async def selected():
        found = await storing.api.get(VOLUME_CLAIMS, "data", "default")
        return SELECTED_NODE in found["metadata"].get("annotations", {})

    await eventually_async(selected)
    await storing.pod("next", requests={"cpu": "1"})
    await storing.refused("next", "Insufficient cpu")
    await storing.api.delete(storing.api.kind_of({"apiVersion": "v1", "kind": "Pod"}), "web", "default")
    await storing.placed("next")


async def test_another_scheduler_continues_where_one_was_killed_while_a_volume_was_provisioned(tmp_path):
    async with running(Options(data_dir=tmp_path, port=0, store_url="memory://")) as server:
        cluster = Cluster(server)
        await cluster.node("n1")
        await cluster.node("n2")
        await cluster.api.create(storage_class("remote", **LATER))
        await cluster.api.create(claim("data", storageClassName="remote"))

        async def selected():
            found = await cluster.api.get(VOLUME_CLAIMS, "data", "default")
            return found["metadata"].get("annotations", {}).get(SELECTED_NODE)

        async with cluster.scheduler():
            await cluster.pod("web", **uses("data"))
            node = await eventually_async(selected)
        async with cluster.scheduler():
            found = await cluster.api.get(VOLUME_CLAIMS, "data", "default")
            reference = {"namespace": "default", "name": "data", "uid": found["metadata"]["uid"]}
            await cluster.api.create(volume("made", storageClassName="remote", claimRef=reference, **on(node)))
            assert (await cluster.placed("web"))["spec"]["nodeName"] == node
