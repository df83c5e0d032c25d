"""Label and field selectors, kind by kind, as list, watch and deletecollection ask for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.apiserver.read import selection
from podwire.kinds import stored
from podwire.protocols.storage import Change, Item
from tests.apiserver.support import answer_when

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SERVICES = "/api/v1/namespaces/default/services"
SECRETS = "/api/v1/namespaces/default/secrets"
NAMESPACES = "/api/v1/namespaces"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
REPLICASETS = "/apis/apps/v1/namespaces/default/replicasets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", ["a", "b"]),
        ("app==x", ["a", "b"]),
        ("app!=x", ["c", "d"]),
        ("app in (x,y)", ["a", "b", "c"]),
        ("app notin (x)", ["c", "d"]),
        ("tier", ["b"]),
        ("!tier", ["a", "c", "d"]),
        ("app=x,tier=web", ["b"]),
        ("app=x,!tier", ["a"]),
        ("app=", []),
        ("", ["a", "b", "c", "d"]),
    ],
)
async def test_labels_choose(api, config, selector, names):
    for name, labels in {"a": {"app": "x"}, "b": {"app": "x", "tier": "web"}, "c": {"app": "y"}, "d": {}}.items():
        await api.made(CONFIGS, config(name, labels=labels))

    assert (await api.get(f"{CONFIGS}?labelSelector={selector}")).names == names


@pytest.mark.parametrize("selector", ["app in", "app in (", "=x", "a b", "app=not a value", "app=x,,", "x" * 70_000])
async def test_labels_that_cannot_be_read_are_refused(api, selector):
    reply = await api.get(f"{CONFIGS}?labelSelector={selector}")

    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")


# --- fields -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def cluster(api, pod):
    """Something of every kind that can be selected by its fields."""
    for name, node, phase in (("p1", "n1", "Running"), ("p2", "n2", "Failed"), ("p3", "", "Pending")):
        await api.made(PODS, pod(name, node=node, restartPolicy="Never" if name == "p2" else "Always"))
        address = {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]} if name == "p1" else {}
        await api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase, **address}})
    await api.made(NODES, {"metadata": {"name": "n1"}})
    await api.made(NODES, {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}})
    about = {"kind": "Pod", "namespace": "default", "name": "p1", "uid": "u1"}
    event = {"involvedObject": about, "reason": "Started", "type": "Normal", "source": {"component": "kubelet"}}
    await api.made(EVENTS, {"metadata": {"name": "e1"}, **event})
    about = {**about, "name": "p2", "uid": "u2"}
    event = {"regarding": about, "reason": "Failed", "type": "Warning", "action": "Bind", "note": "no",
             "eventTime": "2027-01-15T08:00:00.000000Z", "reportingController": "scheduler",
             "reportingInstance": "s"}  # fmt: skip
    await api.made(NEW_EVENTS, {"metadata": {"name": "e2"}, **event})
    await api.made(SERVICES, {"metadata": {"name": "s1"}, "spec": {"ports": [{"port": 80}]}})
    await api.made(SERVICES, {"metadata": {"name": "s2"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}})
    await api.made(SECRETS, {"metadata": {"name": "t1"}})
    await api.made(SECRETS, {"metadata": {"name": "t2"}, "type": "example.com/mine"})
    return api


@pytest.mark.parametrize(
    ("url", "selector", "names"),
    [
        (PODS, "metadata.name=p1", ["p1"]),
        (PODS, "metadata.name!=p1", ["p2", "p3"]),
        (PODS, "metadata.name=p1,metadata.name=p2", []),
        ("/api/v1/pods", "metadata.namespace=default", ["p1", "p2", "p3"]),
        ("/api/v1/pods", "metadata.namespace=other", []),
        ("/api/v1/pods", "metadata.name=p3", ["p3"]),
        (PODS, "spec.nodeName=n1", ["p1"]),
        (PODS, "spec.nodeName=", ["p3"]),
        (PODS, "spec.nodeName!=", ["p1", "p2"]),
        (PODS, "spec.restartPolicy=Never", ["p2"]),
        (PODS, "spec.schedulerName=default-scheduler", ["p1", "p2", "p3"]),
        (PODS, "spec.serviceAccountName=default", ["p1", "p2", "p3"]),
        (PODS, "spec.hostNetwork=false", ["p1", "p2", "p3"]),
        (PODS, "spec.hostNetwork=true", []),
        (PODS, "status.phase=Running", ["p1"]),
        (PODS, "status.phase!=Failed,status.phase!=Pending", ["p1"]),
        (PODS, "status.podIP=10.0.0.1", ["p1"]),
        (PODS, "status.nominatedNodeName=", ["p1", "p2", "p3"]),
        (NODES, "spec.unschedulable=true", ["n2"]),
        (NODES, "spec.unschedulable=false", ["n1"]),
        (NODES, "metadata.name=n1", ["n1"]),
        (EVENTS, "involvedObject.name=p1", ["e1"]),
        (EVENTS, "involvedObject.kind=Pod,involvedObject.uid=u2", ["e2"]),
        (EVENTS, "involvedObject.namespace=default", ["e1", "e2"]),
        (EVENTS, "reason=Started", ["e1"]),
        (EVENTS, "source=kubelet", ["e1"]),
        (EVENTS, "source=scheduler", ["e2"]),
        (EVENTS, "reportingComponent=scheduler", ["e2"]),
        (EVENTS, "type=Warning", ["e2"]),
        (NEW_EVENTS, "regarding.name=p1", ["e1"]),
        (NEW_EVENTS, "regarding.kind=Pod,regarding.uid=u2", ["e2"]),
        (NEW_EVENTS, "reportingController=scheduler", ["e2"]),
        (NEW_EVENTS, "type=Normal", ["e1"]),
        (NEW_EVENTS, "reason=Failed", ["e2"]),
        (SERVICES, "spec.clusterIP=None", ["s2"]),
        (SERVICES, "spec.clusterIP!=None", ["kubernetes", "s1"]),
        (SERVICES, "spec.type=ClusterIP", ["kubernetes", "s1", "s2"]),
        (SECRETS, "type=example.com/mine", ["t2"]),
        (SECRETS, "type=Opaque", ["t1"]),
        (NAMESPACES, "status.phase=Active", ["default", "kube-node-lease", "kube-public", "kube-system"]),
        (NAMESPACES, "status.phase=Terminating", []),
        (NAMESPACES, "metadata.name=default", ["default"]),
    ],
)
async def test_fields_choose(cluster, url, selector, names):
    reply = await cluster.get(f"{url}?fieldSelector={selector.replace('=', '%3D')}")

    assert (reply.status, reply.names) == (200, names)


async def test_slices_are_chosen_by_node_and_driver(api):
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    for name, node in (("a", "n1"), ("b", "n2")):
        spec = {"driver": "net.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "d"}]}
        await api.made(SLICES, {"metadata": {"name": name}, "spec": spec})

    assert (await api.get(f"{SLICES}?fieldSelector=spec.nodeName%3Dn1")).names == ["a"]
    assert (await api.get(f"{SLICES}?fieldSelector=spec.driver%3Dnet.example.com")).names == ["a", "b"]
    gone = await api.delete(f"{SLICES}?fieldSelector=spec.nodeName%3Dn1")
    assert gone.names == ["a"]


async def test_replicas_of_a_set_without_any_count_as_none(api, deployment):
    given = deployment("web")
    await api.made(REPLICASETS, given)

    assert (await api.get(f"{REPLICASETS}?fieldSelector=status.replicas%3D0")).names == ["web"]
    await api.patch(f"{REPLICASETS}/web/status", {"status": {"replicas": 2}})
    assert (await api.get(f"{REPLICASETS}?fieldSelector=status.replicas%3D2")).names == ["web"]


async def test_jobs_are_chosen_by_how_many_pods_succeeded(api):
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    for name in ("a", "b"):
        await api.made(JOBS, {"metadata": {"name": name}, "spec": {"template": template}})
    await api.patch(f"{JOBS}/a/status", {"status": {"succeeded": 1}})

    assert (await api.get(f"{JOBS}?fieldSelector=status.successful%3D1")).names == ["a"]
    assert (await api.get(f"{JOBS}?fieldSelector=status.successful%3D0")).names == ["b"]


@pytest.mark.parametrize(
    ("url", "field"),
    [
        pytest.param(PODS, "spec.containers", id="pod"),
        pytest.param(NEW_EVENTS, "involvedObject.name", id="the other group's word"),
        pytest.param(EVENTS, "regarding.name", id="the other version's word"),
    ],
)
async def test_other_fields_are_refused_by_name(api, url, field):
    reply = await api.get(f"{url}?fieldSelector={field}%3Dx")

    assert (reply.status, reply.message) == (400, f"field label not supported: {field}")


@pytest.mark.parametrize("selector", ["metadata.name", "metadata.name=a=b", "metadata.name in (a)"])
async def test_fields_that_cannot_be_read_are_refused(api, selector):
    reply = await api.get(f"{CONFIGS}?fieldSelector={selector.replace('=', '%3D')}")

    assert reply.status == 400


async def test_a_custom_resource_defines_its_selectable_fields(api, definition):
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}},
    }
    crd = definition(selectableFields=[{"jsonPath": ".spec.color"}], schema={"openAPIV3Schema": schema})
    await api.made(DEFINITIONS, crd)
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    for name, color in (("a", "red"), ("b", "blue")):
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
        await api.made(WIDGETS, {**widget, "spec": {"color": color}})

    assert (await api.get(f"{WIDGETS}?fieldSelector=spec.color%3Dred")).names == ["a"]
    assert (await api.get(f"{WIDGETS}?fieldSelector=spec.size%3D1")).status == 400


async def test_a_new_default_of_a_custom_resource_is_selected_by(api, definition):
    def colored(**color):
        spec = {"type": "object", "default": {}, "properties": {"color": {"type": "string", **color}}}
        schema = {"type": "object", "properties": {"spec": spec}}
        return definition(selectableFields=[{"jsonPath": ".spec.color"}], schema={"openAPIV3Schema": schema})

    await api.made(DEFINITIONS, colored())
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    await api.made(WIDGETS, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {}})
    red = f"{WIDGETS}?fieldSelector=spec.color%3Dred"
    assert (await api.get(red)).names == []

    assert (await api.patch(f"{DEFINITIONS}/widgets.example.com", colored(default="red"))).status == 200

    await answer_when(lambda: api.get(red), lambda reply: reply.names == ["a"])


# --- transitions ------------------------------------------------------------------------------------------------------


def _item(revision: int, labels: dict[str, str] | None) -> Item | None:
    if labels is None:
        return None
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "labels": labels}}
    return Item("/registry/configmaps/default/a", stored.pack(obj), revision, 1)


_STATES = st.sampled_from([None, {"app": "x"}, {"app": "y"}])


@given(before=_STATES, now=_STATES)
def test_a_change_becomes_the_event_that_the_selector_implies(before, now):
    if before is None and now is None:
        return
    change = Change(7, "/registry/configmaps/default/a", _item(7, now), _item(5, before))
    wanted = selection.Selection(labels=selection._labels("app=x"))

    picked = (before == {"app": "x"}, now == {"app": "x"})
    expected = {(False, False): "", (False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}

    assert selection.transition(change, wanted) == expected[picked]
    there = (before is not None, now is not None)
    assert selection.transition(change, selection.Selection()) == expected[there]


async def test_a_label_selectors_view_is_made_once_per_change(api, config, monkeypatch):
    looked = []
    labels = stored.labels
    monkeypatch.setattr(stored, "labels", lambda value: looked.append(value) or labels(value))
    asked = f"{CONFIGS}?resourceVersion={api.store.revision}&labelSelector=app%3Dx"
    watching = [await api.watch(asked) for _ in range(5)]

    await api.made(CONFIGS, config("a", labels={"app": "x"}))

    for watch in watching:
        assert await watch.reported(1) == [("ADDED", "a")]
    assert len(looked) == 1
