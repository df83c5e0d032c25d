"""Consequences of objects: a namespace's first and last objects, and the fate of dependents."""

import json
import time

import pytest

from tests.eventually import eventually

FEW_KUBECTLS = "what happens here is the server's own doing"


def owner(name, uid, *, blocking=False):
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": blocking}


class Family:
    """ConfigMaps that own each other."""

    def __init__(self, server, namespace):
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.server = server

    def make(self, name, *owners, finalizers=()):
        references = [owner(item["metadata"]["name"], item["metadata"]["uid"], blocking=True) for item in owners]
        metadata = {"name": name, "labels": {"family": "yes"}, "ownerReferences": references}
        return self.server.rest("POST", self.path, {"metadata": {**metadata, "finalizers": list(finalizers)}})

    def names(self):
        found = self.server.rest("GET", f"{self.path}?labelSelector=family")["items"]
        return [item["metadata"]["name"] for item in found]

    def get(self, name):
        return self.server.rest("GET", f"{self.path}/{name}")

    def release(self, name):
        patch = {"metadata": {"finalizers": None}}
        self.server.rest("PATCH", f"{self.path}/{name}", patch, Content_Type="application/merge-patch+json")


@pytest.fixture
def family(server, namespace):
    return Family(server, namespace)


def test_a_new_namespace_is_furnished(kubectl, server):
    def things():
        return set(kubectl("get sa,cm -o name").split())

    expected = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
    eventually(lambda: things() == expected)
    authority = kubectl("get cm kube-root-ca.crt -o jsonpath='{.data.ca\\.crt}'")
    assert authority == server.access.ca.text
    kubectl("delete sa default")
    kubectl("delete cm kube-root-ca.crt")
    eventually(lambda: things() == expected)


def test_a_deleted_namespace_is_emptied_and_goes(kubectl, server):
    name = f"{kubectl.namespace}-gone"
    kubectl(f"create ns {name}")
    here = f"--namespace {name}"
    kubectl.together(
        f"{here} create cm colours --from-literal=sky=blue",
        f"{here} create secret generic word --from-literal=pass=word",
        f"{here} create deployment web --image=nginx",
        f"{here} create service clusterip front --tcp=80",
        f"{here} run web --image=nginx",
        f"{here} create role reader --verb=get --resource=pods",
    )
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    path = f"/api/v1/namespaces/{name}/configmaps/colours"
    server.rest("PATCH", path, held, Content_Type="application/merge-patch+json")
    kubectl(f"delete ns {name} --wait=false")
    with kubectl.background(f"get ns {name} -w --no-headers") as watched:
        watched.until(name, "Terminating")
    refused = kubectl.refused(f"{here} create cm late")
    assert f"unable to create new content in namespace {name} because it is being terminated" in refused

    def still_held():
        status = server.rest("GET", f"/api/v1/namespaces/{name}")["status"]
        return ("NamespaceFinalizersRemaining", "True") in {
            (condition["type"], condition["status"]) for condition in status.get("conditions", [])
        }

    eventually(still_held)
    assert kubectl(f"{here} get cm,secret,deploy,svc,pod,role -o name") == "configmap/colours\n"
    with kubectl.background(f"wait ns/{name} --for=delete --timeout=20s -v=6") as gone:
        gone.until("watch=true")
        server.rest("PATCH", path, {"metadata": {"finalizers": None}}, Content_Type="application/merge-patch+json")
        gone.until("condition met")
    assert "NotFound" in kubectl.refused(f"get ns {name}")
    assert "may not be deleted" in kubectl.refused("delete ns kube-system")


def test_dependents_follow_in_the_background(kubectl, family):
    root = family.make("root")
    child = family.make("child", root)
    family.make("grandchild", child)
    other = family.make("other")
    family.make("shared", root, other)
    kubectl("delete cm root --cascade=background")
    eventually(lambda: family.names() == ["other", "shared"])
    kept = family.get("shared")["metadata"]["ownerReferences"]
    assert [item["name"] for item in kept] == ["other"]


def test_an_owner_in_the_foreground_waits_for_its_dependents(kubectl, family):
    root = family.make("root")
    family.make("child", root, finalizers=["example.com/hold"])
    kubectl("delete cm root --cascade=foreground --wait=false")
    waiting = eventually(lambda: family.get("child")["metadata"].get("deletionTimestamp") and family.get("root"))
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert family.names() == ["child", "root"]
    family.release("child")
    eventually(lambda: family.names() == [])


def test_orphans_stay_and_forget_their_owner(kubectl, family):
    root = family.make("root")
    family.make("child", root)
    kubectl("delete cm root --cascade=orphan")
    eventually(lambda: family.names() == ["child"])
    eventually(lambda: "ownerReferences" not in family.get("child")["metadata"])
    time.sleep(0.3)
    assert family.names() == ["child"]


def test_an_object_whose_owner_never_existed_is_collected(kubectl, family):
    stranger = {"metadata": {"name": "nobody", "uid": "00000000-0000-0000-0000-000000000000"}}
    family.make("lonely", stranger)
    eventually(lambda: family.names() == [])


def test_a_deployments_pods_go_with_it(kubectl, server):
    kubectl("create deployment web --image=nginx")
    deployment = kubectl.json("get deployment web")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-1",
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "web",
                    "uid": deployment["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }
    kubectl("create -f -", given=json.dumps(pod))
    assert "Controlled By: Deployment/web" in " ".join(kubectl("describe pod web-1").split())
    kubectl("delete deployment web")
    eventually(lambda: kubectl("get pods -o name") == "")
