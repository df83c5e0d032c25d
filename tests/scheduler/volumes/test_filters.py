"""Where a pod with claims fits: the words for each node, and the decision for the chosen one."""

import pytest

from podwire.objects.persistent_volumes import BIND_COMPLETED, SELECTED_NODE
from podwire.protocols.k8sapi.watch import Added, Deleted, Updated
from podwire.scheduler import Chosen, Unschedulable, choose
from podwire.scheduler.filters import FILTERS
from podwire.scheduler.framework import ClusterEvent
from podwire.scheduler.profiles import Profile
from podwire.scheduler.volumes.informers import VolumeInformers
from podwire.scheduler.volumes.volume_binding import decide_volumes
from tests.controllers.volumes.objects import claim, reference, storage_class, volume

CONFLICT = "didn't match PersistentVolume's node affinity"
NONE_FREE = "didn't find available persistent volumes to bind"
LATER = storage_class("later", volumeBindingMode="WaitForFirstConsumer")
STATIC = storage_class("static", "kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer")


def uses(*names):
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]}


def on(*hosts):
    row = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}}


def bound(name, to, uid="c1", **spec):
    return claim(name, uid=uid, annotations={BIND_COMPLETED: "yes"}, volumeName=to, phase="Bound", **spec)


@pytest.fixture
def snapshot(make_snapshot):
    """Three nodes, and a cache of volumes that a test fills."""
    made = make_snapshot({"n1": {}, "n2": {"labels": {"disk": "ssd"}}, "n3": {}})
    made.volumes.known = True
    return made


def put(snapshot, *objects):
    cache = snapshot.volumes
    for object_ in objects:
        name, namespace = object_["metadata"]["name"], object_["metadata"].get("namespace", "")
        match object_["kind"]:
            case "PersistentVolume":
                cache.volumes[name] = object_
            case "PersistentVolumeClaim":
                cache.claims[namespace, name] = object_
            case "StorageClass":
                cache.classes[name] = object_
            case "CSINode":
                cache.csi_nodes[name] = object_
            case "CSIDriver":
                cache.drivers[name] = object_
            case "CSIStorageCapacity":
                cache.capacities[namespace, name] = object_


def message(found):
    assert isinstance(found, Unschedulable), found
    return found.message.partition(": ")[2].partition(". preemption")[0]


def test_a_pod_follows_its_bound_volume(make_pod, snapshot):
    put(snapshot, bound("data", "disk"), volume("disk", claimRef=reference(), **on("n2")))
    assert choose(make_pod(**uses("data")), snapshot) == Chosen("n2")
    assert not decide_volumes(make_pod(**uses("data")), snapshot, "n2")


def test_a_volume_that_no_node_reaches_excludes_all(make_pod, snapshot):
    put(snapshot, bound("data", "disk"), volume("disk", claimRef=reference(), **on("gone")))
    found = choose(make_pod(**uses("data")), snapshot)
    assert message(found) == f"3 node(s) {CONFLICT}"
    assert ClusterEvent.VOLUMES in found.retry_on
    assert found.preemption is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim("data", uid="c1")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [claim("data", uid="c1", storageClassName="later", volumeName="disk"), LATER],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            [claim("data", uid="c1", phase="Lost", volumeName="disk")],
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "disk"',
        ),
        (
            [bound("data", "disk")],
            "3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
        ([claim("data", uid="c1", storageClassName="static"), STATIC], f"3 node(s) {NONE_FREE}"),
    ],
)
def test_a_claim_that_cannot_be_used_says_why(make_pod, snapshot, given, why):
    put(snapshot, *given)
    assert message(choose(make_pod(**uses("data")), snapshot)) == why


def test_a_claim_that_is_being_deleted_is_not_used_by_a_new_pod(make_pod, snapshot):
    deleted = bound("data", "disk")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    put(snapshot, deleted, volume("disk"))
    assert message(choose(make_pod(**uses("data")), snapshot)) == 'persistentvolumeclaim "data" is being deleted'


def test_an_ephemeral_volume_waits_for_its_claim_and_takes_no_other(make_pod, snapshot):
    pod = make_pod(volumes=[{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}])
    waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "web-tmp"'
    assert message(choose(pod, snapshot)) == waiting
    put(snapshot, bound("web-tmp", "disk"), volume("disk"))
    refused = "PVC default/web-tmp was not created for pod default/web (pod is not owner)"
    assert message(choose(pod, snapshot)) == refused


def test_nothing_is_decided_before_all_volumes_are_known(make_pod, snapshot):
    snapshot.volumes.known = False
    found = choose(make_pod(**uses("data")), snapshot)
    assert isinstance(found, Unschedulable)
    assert found.quiet


def test_a_free_volume_is_chosen_with_the_node_that_reaches_it(make_pod, snapshot):
    put(snapshot, STATIC, claim("data", uid="c1", storageClassName="static"))
    put(snapshot, volume("large", "9Gi", phase="Available", storageClassName="static", **on("n3")))
    put(snapshot, volume("small", "2Gi", phase="Available", storageClassName="static", **on("n3")))
    assert choose(make_pod(**uses("data")), snapshot) == Chosen("n3")
    decision = decide_volumes(make_pod(**uses("data")), snapshot, "n3")
    assert [row["metadata"]["name"] for row, _claim in decision.bindings] == ["small"]
    assert not decision.provisions


def test_two_claims_of_a_pod_get_two_volumes(make_pod, snapshot):
    put(snapshot, STATIC, *(claim(name, uid=name, storageClassName="static") for name in ("a", "b")))
    put(snapshot, volume("one", phase="Available", storageClassName="static", **on("n1", "n2")))
    assert message(choose(make_pod(**uses("a", "b")), snapshot)) == f"3 node(s) {NONE_FREE}"
    put(snapshot, volume("two", phase="Available", storageClassName="static", **on("n2")))
    assert choose(make_pod(**uses("a", "b")), snapshot) == Chosen("n2")


def test_a_chosen_volume_is_taken_until_it_is_given_up(make_pod, snapshot):
    put(snapshot, STATIC, *(claim(name, uid=name, storageClassName="static") for name in ("a", "b")))
    put(snapshot, volume("one", phase="Available", storageClassName="static"))
    first = decide_volumes(make_pod("first", **uses("a")), snapshot, "n1")
    snapshot.volumes.assume("uid-first", "n1", first)
    assert message(choose(make_pod("second", **uses("b")), snapshot)) == f"3 node(s) {NONE_FREE}"
    assert snapshot.volumes.forget("uid-first")
    assert isinstance(choose(make_pod("second", **uses("b")), snapshot), Chosen)


def test_a_volume_is_provisioned_where_the_class_allows_it(make_pod, snapshot):
    zone = {"matchLabelExpressions": [{"key": "disk", "values": ["ssd"]}]}
    put(snapshot, {**LATER, "allowedTopologies": [zone]}, claim("data", uid="c1", storageClassName="later"))
    assert choose(make_pod(**uses("data")), snapshot) == Chosen("n2")
    decision = decide_volumes(make_pod(**uses("data")), snapshot, "n2")
    assert [row["metadata"]["name"] for row in decision.provisions] == ["data"]


def test_a_profile_without_the_filters_lets_a_pod_pass_and_writes_nothing(make_pod, snapshot):
    names = ("VolumeRestrictions", "VolumeBinding")
    profile = Profile(filters=tuple(row for row in FILTERS if row.name not in names))
    assert isinstance(choose(make_pod(**uses("data")), snapshot, profile), Chosen)
    assert not decide_volumes(make_pod(**uses("data")), snapshot, "n1")
    put(snapshot, STATIC, claim("data", uid="c1", storageClassName="static"))
    assert not decide_volumes(make_pod(**uses("data")), snapshot, "n1")


def test_a_node_that_was_selected_before_stays_selected(make_pod, snapshot):
    selected = claim("data", uid="c1", storageClassName="later", annotations={SELECTED_NODE: "n3"})
    put(snapshot, LATER, selected)
    assert choose(make_pod(**uses("data")), snapshot) == Chosen("n3")


def test_a_second_pod_of_a_claim_follows_the_node_that_was_just_selected(make_pod, snapshot):
    put(snapshot, LATER, claim("data", uid="c1", storageClassName="later"))
    decision = decide_volumes(make_pod("first", **uses("data")), snapshot, "n3")
    snapshot.volumes.assume("uid-first", "n3", decision)
    assert choose(make_pod("second", **uses("data")), snapshot) == Chosen("n3")


def test_a_node_without_the_capacity_of_a_driver_is_excluded(make_pod, snapshot):
    driver = {"kind": "CSIDriver", "metadata": {"name": "disks.example.com"}, "spec": {"storageCapacity": True}}
    put(snapshot, LATER, driver, claim("data", "5Gi", uid="c1", storageClassName="later"))
    for node, size in (("n1", "1Gi"), ("n2", "9Gi"), ("n3", "9Gi")):
        topology = {"matchLabels": {"kubernetes.io/hostname": node}}
        more = {"maximumVolumeSize": "2Gi"} if node == "n3" else {}
        row = {"storageClassName": "later", "capacity": size, "nodeTopology": topology, **more}
        put(snapshot, {"kind": "CSIStorageCapacity", "metadata": {"name": node, "namespace": "x"}, **row})
    assert choose(make_pod(**uses("data")), snapshot) == Chosen("n2")
    snapshot.volumes.capacities.clear()
    assert message(choose(make_pod(**uses("data")), snapshot)) == "3 node(s) did not have enough free storage"


def test_a_claim_for_one_pod_is_used_by_one_pod_of_the_cluster(make_pod, make_snapshot):
    snapshot = make_snapshot({"n1": {}, "n2": {}}, [("n1", "first", uses("data"))])
    snapshot.volumes.known = True
    put(snapshot, bound("data", "disk", accessModes=["ReadWriteOncePod"]), volume("disk", claimRef=reference()))
    why = "ReadWriteOncePod access mode already in-use by another pod"
    found = choose(make_pod("second", **uses("data")), snapshot)
    assert why in message(found)
    assert ClusterEvent.POD_GONE in found.retry_on
    important = choose(make_pod("third", **uses("data"), priority=1000), snapshot)
    assert [victim.pod.name for victim in important.preemption.victims] == ["first"]


def test_a_node_has_no_more_volumes_of_a_driver_than_it_can_attach(make_pod, make_snapshot):
    snapshot = make_snapshot({"n1": {}}, [("n1", "first", uses("a")), ("n1", "second", uses("b"))])
    snapshot.volumes.known = True
    for name in ("a", "b", "c"):
        source = {"driver": "disks.example.com", "volumeHandle": "shared" if name != "c" else "own"}
        put(snapshot, bound(name, f"disk-{name}", name), volume(f"disk-{name}", csi=source, claimRef=reference(name)))
    row = {"name": "disks.example.com", "nodeID": "n1", "allocatable": {"count": 1}}
    put(snapshot, {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": [row]}})
    assert choose(make_pod("third", **uses("a")), snapshot) == Chosen("n1")  # it is attached already
    assert message(choose(make_pod("fourth", **uses("c")), snapshot)) == "1 node(s) exceed max volume count"
    row["allocatable"]["count"] = 2
    assert choose(make_pod("fourth", **uses("c")), snapshot) == Chosen("n1")


def test_a_volume_with_the_label_of_a_zone_is_used_there(make_pod, make_snapshot):
    zone = "topology.kubernetes.io/zone"
    snapshot = make_snapshot({"n1": {"labels": {zone: "a"}}, "n2": {"labels": {zone: "b"}}})
    snapshot.volumes.known = True
    old = "failure-domain.beta.kubernetes.io/zone"
    put(snapshot, bound("data", "disk"), volume("disk", labels={old: "b__c"}, claimRef=reference()))
    assert choose(make_pod(**uses("data")), snapshot) == Chosen("n2")
    put(snapshot, volume("disk", labels={zone: "c"}, claimRef=reference()))
    assert message(choose(make_pod(**uses("data")), snapshot)) == "2 node(s) had no available volume zone"


def test_an_event_wakes_only_the_pods_that_it_may_help(make_pod, snapshot):
    pods = {
        "unbound": make_pod("unbound", **uses("a")),
        "bound": make_pod("bound", **uses("b")),
        "other": make_pod("other", **uses("c")),
        "none": make_pod("none"),
    }
    put(snapshot, claim("a", uid="a", storageClassName="later"), bound("b", "disk", "b"))
    put(snapshot, claim("c", uid="c", storageClassName="static"))
    woken = []

    def activate(event, concerns):
        assert event is ClusterEvent.VOLUMES
        woken.append({name for name, pod in pods.items() if concerns(pod)})

    informers = VolumeInformers(snapshot.volumes, activate)
    informers.volume(Added(volume("new", storageClassName="later")))
    informers.volume(Added(volume("disk", storageClassName="later")))
    informers.storage_class(Added(STATIC))
    informers.storage_class(Updated({**STATIC, "allowVolumeExpansion": True}, STATIC))
    informers.claim(Deleted(claim("a", uid="a", storageClassName="later")))
    assert woken == [{"unbound"}, {"unbound", "bound"}, {"other"}, {"unbound"}]
