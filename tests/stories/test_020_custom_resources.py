"""Custom resources, as a user of kubectl meets them: defined, used, checked, shown, removed."""

import json
import re

import pytest

from tests.eventually import eventually

FEW_KUBECTLS = "they differ in how they discover: group by group, in a first draft of the whole, in the whole"

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: pools, singular: pool, kind: Pool, shortNames: [SHORT], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.filled}
    selectableFields: [{jsonPath: .spec.colour}]
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Colour, type: string, jsonPath: .spec.colour, priority: 1}
    - {name: Filled, type: integer, jsonPath: .status.filled}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        description: A pool of addresses.
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 99, description: How many addresses it holds.}
              colour: {type: string, enum: [red, green], default: green}
              notes: {type: array, maxItems: 2, items: {type: string, pattern: "^[a-z]+$"}}
          status:
            type: object
            properties: {filled: {type: integer}}
"""
CRDS = "customresourcedefinitions"
POOL = """
apiVersion: GROUP/v1
kind: Pool
metadata: {name: deep, labels: {app: web}}
spec: {size: 5}
"""


class Pools:
    """A definition of its own for each story, so that they do not meet."""

    def __init__(self, kubectl):
        self.group = f"{kubectl.namespace}.example.com"
        self.short = f"pl{kubectl.namespace.removeprefix('story-')}"
        self.name = f"pools.{self.group}"
        self.kubectl = kubectl

    def filled(self, manifest):
        return manifest.replace("GROUP", self.group).replace("SHORT", self.short)

    def refusal(self, spec):
        pool = {"apiVersion": f"{self.group}/v1", "kind": "Pool", "metadata": {"name": "bad"}, "spec": spec}
        lax = " --validate=false" if self.kubectl.version < (1, 27) else ""  # 1.20 validates by OpenAPI v2 itself
        return self.kubectl.refused(f"apply{lax} -f -", given=json.dumps(pool))


@pytest.fixture
def pools(kubectl):
    made = Pools(kubectl)
    created = kubectl("apply -f -", given=made.filled(DEFINITION))
    assert created == f"customresourcedefinition.apiextensions.k8s.io/{made.name} created\n"
    kubectl(f"wait crd/{made.name} --for=condition=Established --timeout=20s")
    yield made
    kubectl(f"delete crd {made.name} --ignore-not-found --wait=false")


def test_a_new_kind_is_used_like_any_other(kubectl, pools):
    assert kubectl("apply -f -", given=pools.filled(POOL)) == f"pool.{pools.group}/deep created\n"
    assert kubectl("apply -f -", given=pools.filled(POOL)) == f"pool.{pools.group}/deep unchanged\n"
    assert (
        kubectl("apply -f -", given=pools.filled(POOL).replace("size: 5", "size: 6"))
        == f"pool.{pools.group}/deep configured\n"
    )
    table, wide, short, names, red, green = kubectl.together(
        f"get {pools.name}",
        f"get {pools.short} -o wide",
        f"get {pools.short} deep -o name",
        "get all -o name",
        f"get {pools.name} --field-selector spec.colour=red -o name",
        f"get {pools.name} --field-selector spec.colour=green -o name",
    )
    assert [line.split()[:2] for line in table.splitlines()] == [["NAME", "SIZE"], ["deep", "6"]]
    assert table.splitlines()[0].split() == ["NAME", "SIZE", "FILLED", "AGE"]
    assert wide.splitlines()[0].split() == ["NAME", "SIZE", "COLOUR", "FILLED", "AGE"]
    assert "green" in wide.splitlines()[1]
    assert short == names == green == f"pool.{pools.group}/deep\n"
    assert red == ""
    kubectl(f"label {pools.name} deep owner=me")
    kubectl(f"patch {pools.name} deep --type merge -p", '{"spec": {"notes": ["a", "b"]}}')
    kubectl(f"patch {pools.name} deep --type json -p", '[{"op": "remove", "path": "/spec/notes/0"}]')
    kubectl(f"edit {pools.name} deep", KUBE_EDITOR="sed -i 's/colour: green/colour: red/'")
    pool = kubectl.json(f"get {pools.name} deep")
    assert pool["spec"] == {"size": 6, "colour": "red", "notes": ["b"]}
    assert pool["metadata"]["generation"] == 5
    described = " ".join(kubectl(f"describe {pools.name} deep").split())
    assert "Colour: red Notes: b Size: 6" in described
    with kubectl.background(f"get {pools.name} -w --no-headers") as watched:
        watched.until("deep")
        kubectl(f"patch {pools.name} deep --type merge -p", '{"spec": {"size": 7}}')
        watched.until("deep", "7")
        kubectl(f"delete {pools.name} deep")
    assert "NotFound" in kubectl.refused(f"get {pools.name} deep")


def test_a_status_is_written_through_its_subresource(kubectl, pools, server):
    kubectl("apply -f -", given=pools.filled(POOL) + "status: {filled: 3}\n")
    assert "status" not in kubectl.json(f"get {pools.name} deep")
    path = f"/apis/{pools.group}/v1/namespaces/{kubectl.namespace}/pools/deep"
    merge = {"Content_Type": "application/merge-patch+json"}
    server.rest("PATCH", f"{path}/status", {"status": {"filled": 4}, "spec": {"size": 50}}, **merge)
    pool = kubectl.json(f"get {pools.name} deep")
    assert (pool["spec"]["size"], pool["status"], pool["metadata"]["generation"]) == (5, {"filled": 4}, 1)
    assert re.search(r"^deep +5 +4 +\S+$", kubectl(f"get {pools.name} --no-headers"), re.MULTILINE)
    assert "scaled" in kubectl(f"scale {pools.name} deep --replicas=9")
    assert kubectl(f"get {pools.name} deep -o jsonpath={{.spec.size}}") == "9"
    if kubectl.version >= (1, 24):
        kubectl(f"patch {pools.name} deep --subresource status --type merge -p", '{"status": {"filled": 8}}')
        assert kubectl(f"get {pools.name} deep -o jsonpath={{.status.filled}}") == "8"
    if kubectl.version >= (1, 23):
        kubectl(f"wait {pools.name}/deep --for=jsonpath='{{.spec.size}}'=9 --timeout=20s")


def test_schema_violations_are_refused_with_their_field(kubectl, pools):
    refused = pools.refusal({"size": 0, "colour": "blue", "notes": ["a", "b", "C"]})
    for expected in (
        'The Pool "bad" is invalid',
        "spec.size in body should be greater than or equal to 1",
        'spec.colour: Unsupported value: "blue": supported values: "red", "green"',
        "spec.notes: Too many: 3: must have at most 2 items",
        "spec.notes[2] in body should match '^[a-z]+$'",
    ):
        assert expected in refused, refused
    assert "spec.size: Required value" in pools.refusal({})
    assert 'spec.size in body must be of type integer: "string"' in pools.refusal({"size": "many"})
    if kubectl.version >= (1, 27):
        assert 'unknown field "spec.depth"' in pools.refusal({"size": 1, "depth": 2})
    strategic = kubectl.refused(f"patch {pools.name} bad --type strategic -p", "{}")
    assert "not found" in strategic or "application/strategic-merge-patch+json is not supported" in strategic
    assert kubectl(f"get {pools.name} -o name") == ""


def test_fields_that_no_schema_knows_are_pruned(kubectl, pools):
    with_more = pools.filled(POOL).replace("size: 5", "size: 5, depth: 3")
    kubectl("apply --validate=false -f -", given=with_more)
    assert kubectl.json(f"get {pools.name} deep")["spec"] == {"size": 5, "colour": "green"}


def test_a_new_kind_is_explained_and_discovered(kubectl, pools):
    listed, versions = kubectl.together(f"api-resources --api-group={pools.group} --no-headers", "api-versions")
    assert listed.split() == ["pools", pools.short, f"{pools.group}/v1", "true", "Pool"]
    assert f"{pools.group}/v1" in versions.split()
    if kubectl.version >= (1, 27):
        field = kubectl(f"explain {pools.name}.spec.size")
        assert "How many addresses it holds." in field
        assert "<integer>" in field
        assert "A pool of addresses." in kubectl(f"explain {pools.short}")


def test_a_definition_takes_its_objects_with_it(kubectl, pools, server):
    second = f"{kubectl.namespace}-b"
    kubectl(f"create ns {second}")
    kubectl("apply -f -", given=pools.filled(POOL))
    kubectl(f"apply --namespace {second} -f -", given=pools.filled(POOL))
    kubectl(f"patch {pools.name} deep --type merge -p", '{"metadata": {"finalizers": ["example.com/hold"]}}')
    kubectl(f"delete crd {pools.name} --wait=false")
    pool = f"/apis/{pools.group}/v1/namespaces/{kubectl.namespace}/pools/deep"
    eventually(lambda: server.rest("GET", pool)["metadata"].get("deletionTimestamp"))
    definition = kubectl.json(f"get crd {pools.name}")
    assert "Terminating" in {condition["type"] for condition in definition["status"]["conditions"]}
    assert "the server does not allow" in pools.refusal({"size": 1}) or "NotFound" in pools.refusal({"size": 1})
    merge = {"Content_Type": "application/merge-patch+json"}
    server.rest("PATCH", pool, {"metadata": {"finalizers": None}}, **merge)
    eventually(lambda: server.ask("GET", f"/apis/apiextensions.k8s.io/v1/{CRDS}/{pools.name}")[0] == 404)
    assert server.ask("GET", pool)[0] == 404
    assert "the server doesn't have a resource type" in kubectl.refused(f"get {pools.name}")
    kubectl(f"delete ns {second}")


def test_a_changed_definition_is_served_at_once(kubectl, pools):
    kubectl("apply -f -", given=pools.filled(POOL))
    wider = pools.filled(DEFINITION).replace("maximum: 99", "maximum: 999")
    wider = wider.replace(
        "status:\n            type: object", "more: {type: string}\n          status:\n            type: object"
    )
    kubectl("apply -f -", given=wider)
    patched = kubectl(f"patch {pools.name} deep --type merge -p", '{"spec": {"size": 500}, "more": "words"}')
    assert "patched" in patched
    pool = kubectl.json(f"get {pools.name} deep")
    assert (pool["spec"]["size"], pool["more"]) == (500, "words")


def test_a_bad_definition_is_refused_with_reasons(kubectl):
    group = f"{kubectl.namespace}.example.com"
    bad = DEFINITION.replace("GROUP", group).replace("SHORT", "Not-Short").replace("type: array", "type: list")
    refused = kubectl.refused("create -f -", given=bad)
    assert "spec.names.shortNames[0]: Invalid value" in refused
    assert 'properties[notes].type: Unsupported value: "list"' in refused
