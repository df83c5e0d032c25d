"""Deployments on a real API server."""

import asyncio

from podwire.controllers.apps.deployment_decisions import REVISION, REVISION_HISTORY, ROLLBACK_TO, template_hash
from podwire.controllers.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from podwire.protocols.k8sapi.client_side import Propagation, Scope
from tests.controllers.apps.conftest import template, workload
from tests.eventually import eventually_async


def rolled_out(deployment):
    status, spec = deployment.get("status") or {}, deployment["spec"]
    counts = ("replicas", "updatedReplicas", "availableReplicas")
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and all(
        status.get(field, 0) == spec["replicas"] for field in counts
    )


def condition(deployment, type_):
    found = [
        condition
        for condition in (deployment.get("status") or {}).get("conditions") or ()
        if condition["type"] == type_
    ]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None


async def change_image(cluster, image, **more):
    containers = [{"name": "main", "image": image}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}, **more}}
    return await cluster.api.patch(DEPLOYMENTS, "web", patch, "default")


async def sets_of(cluster):
    found = (await cluster.api.list(REPLICA_SETS, Scope(namespace="default"))).items
    return sorted(found, key=lambda set_: int(set_["metadata"]["annotations"][REVISION]))


async def images(cluster):
    return [pod["spec"]["containers"][0]["image"] for pod in await cluster.pods()]


async def test_a_deployment_rolls_out_with_upstreams_names_conditions_and_events(cluster):
    manifest = workload("Deployment", replicas=3)
    manifest["metadata"]["annotations"] = {"team": "shop"}
    await cluster.api.create(manifest)
    deployment = await cluster.until(DEPLOYMENTS, "web", rolled_out)
    [set_] = await sets_of(cluster)
    name = set_["metadata"]["name"]
    assert name == f"web-{set_['metadata']['labels']['pod-template-hash']}"
    assert set_["metadata"]["annotations"] == {
        "team": "shop",
        REVISION: "1",
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    }
    deployment = await cluster.until(
        DEPLOYMENTS, "web", lambda found: condition(found, "Progressing")[1] == "NewReplicaSetAvailable"
    )
    assert deployment["metadata"]["annotations"][REVISION] == "1"
    assert condition(deployment, "Available") == (
        "True",
        "MinimumReplicasAvailable",
        "Deployment has minimum availability.",
    )
    assert condition(deployment, "Progressing") == (
        "True",
        "NewReplicaSetAvailable",
        f'ReplicaSet "{name}" has successfully progressed.',
    )
    await cluster.settled()
    assert await cluster.events("web") == [("ScalingReplicaSet", f"Scaled up replica set {name} from 0 to 3")]
    before = len(cluster.line.requests)
    await asyncio.sleep(1)
    assert len(cluster.line.requests) == before


async def test_a_rolling_update_keeps_enough_pods_available(cluster):
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await cluster.api.create(workload("Deployment", replicas=4, strategy=strategy))
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    fewest, most = [], []

    async def watch():
        async for _ in cluster.api.informer(PODS):
            pods = [pod for pod in await cluster.pods() if not pod["metadata"].get("deletionTimestamp")]
            most.append(len(pods))
            ready = [
                pod
                for pod in pods
                for condition in pod["status"].get("conditions") or ()
                if condition["type"] == "Ready" and condition["status"] == "True"
            ]
            fewest.append(len(ready))

    watching = asyncio.create_task(watch())
    await change_image(cluster, "nginx:2")
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    watching.cancel()
    await cluster.settled()
    assert (min(fewest), max(most)) == (4, 5)
    assert await images(cluster) == ["nginx:2"] * 4
    [old, new] = await sets_of(cluster)
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 4)


async def test_an_old_template_reuses_its_set_and_gets_a_new_revision(cluster):
    await cluster.api.create(workload("Deployment", replicas=2))
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    [first] = await sets_of(cluster)
    for image in ("nginx:2", "nginx:1"):
        await change_image(cluster, image)
        deployment = await cluster.until(DEPLOYMENTS, "web", rolled_out)
    assert deployment["metadata"]["annotations"][REVISION] == "3"
    [_, latest] = await sets_of(cluster)
    assert latest["metadata"]["uid"] == first["metadata"]["uid"]
    assert latest["metadata"]["annotations"][REVISION_HISTORY] == "1"


async def test_the_deprecated_annotation_rolls_back(cluster):
    await cluster.api.create(workload("Deployment", replicas=1))
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    await change_image(cluster, "nginx:2")
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    for revision, image in (("0", "nginx:1"), ("7", "nginx:1"), ("2", "nginx:2")):
        await cluster.api.patch(DEPLOYMENTS, "web", {"metadata": {"annotations": {ROLLBACK_TO: revision}}}, "default")
        deployment = await cluster.until(
            DEPLOYMENTS,
            "web",
            lambda found: ROLLBACK_TO not in found["metadata"]["annotations"] and rolled_out(found),
        )
        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image
    await cluster.settled()
    events = [event for event in await cluster.events("web") if event[0].startswith("DeploymentRollback")]
    assert sorted(events) == [
        ("DeploymentRollback", 'Rolled back deployment "web" to revision 1'),
        ("DeploymentRollback", 'Rolled back deployment "web" to revision 2'),
        ("DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to."),
    ]


async def test_recreate_stops_old_pods_before_it_starts_new_ones(cluster):
    await cluster.api.create(workload("Deployment", replicas=3, strategy={"type": "Recreate"}))
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    mixed = []

    async def watch():
        async for _ in cluster.api.informer(PODS):
            kinds = len(set(await images(cluster)))
            mixed.append(kinds)

    watching = asyncio.create_task(watch())
    await change_image(cluster, "nginx:2")
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    watching.cancel()
    assert max(mixed) == 1
    assert await images(cluster) == ["nginx:2"] * 3


async def test_a_paused_deployment_scales_but_does_not_roll_out(cluster):
    await cluster.api.create(workload("Deployment", replicas=2))
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    await change_image(cluster, "nginx:2", paused=True, replicas=3)
    deployment = await cluster.until(DEPLOYMENTS, "web", lambda found: found["status"].get("availableReplicas") == 3)
    assert await images(cluster) == ["nginx:1"] * 3
    assert condition(deployment, "Progressing") == ("Unknown", "DeploymentPaused", "Deployment is paused")
    await cluster.api.patch(DEPLOYMENTS, "web", {"spec": {"paused": None}}, "default")
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    assert await images(cluster) == ["nginx:2"] * 3


async def test_a_rollout_that_does_not_progress_times_out(cluster):
    await cluster.api.create(workload("Deployment", replicas=2, progressDeadlineSeconds=3))
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    await change_image(cluster, "broken:1")
    deployment = await cluster.until(
        DEPLOYMENTS, "web", lambda found: condition(found, "Progressing")[1] == "ProgressDeadlineExceeded"
    )
    assert condition(deployment, "Available")[0] == "True"
    [_, new] = await sets_of(cluster)
    assert condition(deployment, "Progressing") == (
        "False",
        "ProgressDeadlineExceeded",
        f'ReplicaSet "{new["metadata"]["name"]}" has timed out progressing.',
    )
    assert sorted(await images(cluster)) == ["broken:1", "nginx:1", "nginx:1"]
    await change_image(cluster, "nginx:1")
    await cluster.until(DEPLOYMENTS, "web", rolled_out)


async def test_old_sets_beyond_the_history_limit_are_deleted(cluster):
    await cluster.api.create(workload("Deployment", replicas=1, revisionHistoryLimit=1))
    for image in ("nginx:2", "nginx:3", "nginx:4"):
        await cluster.until(DEPLOYMENTS, "web", rolled_out)
        await change_image(cluster, image)
    await cluster.until(DEPLOYMENTS, "web", rolled_out)

    async def two_left():
        return [set_["metadata"]["annotations"][REVISION] for set_ in await sets_of(cluster)] == ["3", "4"]

    await eventually_async(two_left)


async def test_a_name_that_another_set_has_is_a_collision(cluster):
    taken = workload("ReplicaSet", replicas=0, selector={"matchLabels": {"app": "x"}}, template=template(app="x"))
    dry = await cluster.api.create(workload("Deployment", replicas=1), dry_run=True)
    taken["metadata"]["name"] = f"web-{template_hash(dry['spec']['template'], None)}"
    await cluster.api.create(taken)
    await cluster.api.create(workload("Deployment", replicas=1))
    deployment = await cluster.until(DEPLOYMENTS, "web", rolled_out)
    assert deployment["status"]["collisionCount"] == 1


async def test_deleting_a_deployment_deletes_everything_below_it(cluster):
    await cluster.api.create(workload("Deployment", replicas=3))
    await cluster.until(DEPLOYMENTS, "web", rolled_out)
    await cluster.api.delete(DEPLOYMENTS, "web", "default", propagation=Propagation.FOREGROUND)

    async def gone():
        return not await cluster.pods() and not await sets_of(cluster)

    await eventually_async(gone)


async def test_a_forbidden_pod_is_shown_in_the_deployment(cluster):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": "default"}}
    await cluster.api.create({**quota, "spec": {"hard": {"pods": "0"}}})
    await cluster.settled()
    await cluster.api.create(workload("Deployment", replicas=2))
    deployment = await cluster.until(DEPLOYMENTS, "web", lambda found: condition(found, "ReplicaFailure"))
    assert condition(deployment, "ReplicaFailure")[:2] == ("True", "FailedCreate")
    assert condition(deployment, "Available")[:2] == ("False", "MinimumReplicasUnavailable")
