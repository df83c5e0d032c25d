"""Devices, shown with kubectl: classes, slices, claims, templates, and what a pod makes of them."""

import json

from tests.eventually import eventually

FEW_KUBECTLS = "what happens here is the server's own doing"

CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: {name}
spec:
  selectors:
  - cel:
      expression: device.driver == "net.example" && device.attributes["net.example"].mtu >= 1500
"""
CLAIMS = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: mine
spec:
  devices:
    requests:
    - name: nic
      exactly:
        deviceClassName: {name}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: fast
spec:
  metadata:
    labels:
      tier: fast
  spec:
    devices:
      requests:
      - name: nic
        exactly:
          deviceClassName: {name}
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  resourceClaims:
  - name: shared
    resourceClaimName: mine
  - name: own
    resourceClaimTemplateName: fast
  containers:
  - name: c
    image: nginx
    resources:
      claims:
      - name: shared
      - name: own
"""
SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: {name}
spec:
  driver: net.example
  nodeName: {name}
  pool:
    name: {name}
    generation: 1
    resourceSliceCount: 1
  devices:
  - name: eth2
    attributes:
      mtu:
        int: 9000
"""


def rows(table):
    return [line.split()[:-1] for line in table.splitlines()[1:]]


def allocate(server, namespace, name, pod):
    """Writes as a scheduler does: its finalizer, then devices and holders in one status."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
    claim = server.rest("GET", path)
    claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    claim = server.rest("PUT", path, claim)
    result = {"request": "nic", "driver": "net.example", "pool": "n1", "device": "eth2"}
    holder = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [holder]}
    server.rest("PUT", f"{path}/status", claim)


def test_a_pod_gets_a_claim_from_its_template_and_releases_it(kubectl, server):
    class_name = kubectl.namespace
    kubectl("apply -f -", given=CLASS.format(name=class_name))
    kubectl("apply -f -", given=CLAIMS.format(name=class_name))
    assert [class_name] in rows(kubectl("get deviceclasses"))
    assert rows(kubectl("get resourceclaims")) == [["mine", "pending"]]
    assert rows(kubectl("get resourceclaimtemplates")) == [["fast"]]

    eventually(lambda: "default" in kubectl("get sa -o name"))
    kubectl("apply -f -", given=POD)
    statuses = eventually(lambda: kubectl("get pod web -o jsonpath={.status.resourceClaimStatuses}"))
    (status,) = json.loads(statuses)
    own = status["resourceClaimName"]
    assert (status["name"], own.startswith("web-own-")) == ("own", True)
    assert rows(kubectl("get resourceclaims --selector tier=fast")) == [[own, "pending"]]

    pod = json.loads(kubectl("get pod web -o json"))
    for name in ("mine", own):
        allocate(server, kubectl.namespace, name, pod)
    assert rows(kubectl("get resourceclaims")) == [["mine", "allocated,reserved"], [own, "allocated,reserved"]]

    kubectl("delete pod web --grace-period=0 --force")

    eventually(lambda: rows(kubectl("get resourceclaims")) == [["mine", "pending"]])
    kubectl(f"delete resourceclaim/mine deviceclass/{class_name}")
    assert rows(kubectl("get resourceclaims")) == []


def test_slices_are_shown_by_node_and_driver_and_in_older_versions(kubectl):
    name = kubectl.namespace
    kubectl("apply -f -", given=SLICE.format(name=name))

    table = kubectl(f"get resourceslices --field-selector spec.nodeName={name},spec.driver=net.example")
    assert table.splitlines()[0].split() == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert rows(table) == [[name, name, "net.example", name]]
    older = json.loads(kubectl(f"get resourceslices.v1beta1.resource.k8s.io {name} -o json"))
    assert older["spec"]["devices"] == [{"name": "eth2", "basic": {"attributes": {"mtu": {"int": 9000}}}}]

    kubectl(f"delete resourceslice {name}")
    assert "NotFound" in kubectl.refused(f"get resourceslice {name}")


def test_bad_claims_are_refused_with_field_and_reason(kubectl):
    wrong = CLAIMS.partition("---")[0].format(name="nics").replace("exactly:", "exactly:\n        allocationMode: Most")
    error = kubectl.refused("create -f -", given=wrong)
    assert (
        'spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Most": '
        'supported values: "All", "ExactCount"'
    ) in error

    error = kubectl.refused("create -f -", given=CLASS.format(name="x").replace("device.driver", "device.color"))
    assert "spec.selectors[0].cel.expression: Invalid value:" in error
    assert "compilation failed: ERROR: <input>:1:7: undefined field 'color'" in error

    greedy = CLAIMS.partition("---")[0].format(name="nics").replace("exactly:", "exactly:\n        adminAccess: true")
    error = kubectl.refused("create -f -", given=greedy)
    assert "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label" in error
    kubectl(f"label namespace {kubectl.namespace} resource.kubernetes.io/admin-access=true")
    assert "created" in kubectl("create -f -", given=greedy)
