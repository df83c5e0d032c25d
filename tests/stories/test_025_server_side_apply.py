"""Server-side apply by the real kubectl, old and new: who owns what, conflicts, force, definitions, controllers."""

import json

import pytest

from tests.eventually import eventually

MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {{name: colours}}
data: {data}
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "nginx:1.27", ports: [{containerPort: 80}]}
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: palettes.paint.example.com}
spec:
  group: paint.example.com
  scope: Namespaced
  names: {plural: palettes, singular: palette, kind: Palette}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              colours:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, code: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
PALETTE = """
apiVersion: paint.example.com/v1
kind: Palette
metadata: {{name: warm}}
spec: {{colours: {colours}}}
"""
LAST = "kubectl.kubernetes.io/last-applied-configuration"


def colours(**data):
    return MAP.format(data=json.dumps(data))


@pytest.fixture
def apply(kubectl):
    def apply(text, *more):
        return kubectl("apply --server-side -f -", *more, given=text)

    return apply


def managers(kubectl, what):
    return {
        (entry["manager"], entry["operation"]): entry["fieldsV1"]
        for entry in kubectl.json(f"get {what}{shown(kubectl)}")["metadata"].get("managedFields", [])
    }


def shown(kubectl):
    """From 1.21 on kubectl leaves them out unless it is asked for them."""
    return " --show-managed-fields" if kubectl.version >= (1, 21) else ""


def test_objects_are_made_changed_and_left_alone(kubectl, apply):
    assert apply(colours(a="1", b="2")) == "configmap/colours serverside-applied\n"
    assert apply(colours(a="3")) == "configmap/colours serverside-applied\n"
    found = kubectl.json("get cm colours")
    assert found["data"] == {"a": "3"}
    assert "annotations" not in found["metadata"]
    assert apply(colours(a="3")) == "configmap/colours serverside-applied\n"
    assert kubectl.json("get cm colours")["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    assert managers(kubectl, "cm colours") == {("kubectl", "Apply"): {"f:data": {"f:a": {}}}}


def test_managed_fields_are_shown_on_request(kubectl, apply):
    apply(colours(a="1"))
    if kubectl.version >= (1, 21):
        assert "managedFields" not in kubectl("get cm colours -o yaml")
    assert "managedFields" in kubectl(f"get cm colours -o yaml{shown(kubectl)}")


def test_a_conflict_is_reported_and_force_takes_the_field(kubectl, apply):
    apply(colours(a="1", b="2"), "--field-manager=first")
    error = kubectl.refused("apply --server-side --field-manager=second -f -", given=colours(a="2"))
    assert 'conflict with "first"' in error
    assert ".data.a" in error
    apply(colours(a="2"), "--field-manager=second", "--force-conflicts")
    assert kubectl.json("get cm colours")["data"] == {"a": "2", "b": "2"}
    assert managers(kubectl, "cm colours") == {
        ("first", "Apply"): {"f:data": {"f:b": {}}},
        ("second", "Apply"): {"f:data": {"f:a": {}}},
    }


def test_two_managers_share_a_field_until_one_releases_it(kubectl, apply):
    apply(colours(a="1"), "--field-manager=first")
    apply(colours(a="1", b="2"), "--field-manager=second")
    apply(colours(c="3"), "--field-manager=first")
    assert kubectl.json("get cm colours")["data"] == {"a": "1", "b": "2", "c": "3"}
    apply(colours(b="2"), "--field-manager=second")
    assert kubectl.json("get cm colours")["data"] == {"b": "2", "c": "3"}


def test_a_deployment_is_scaled_past_its_applier(kubectl, apply):
    assert apply(WEB) == "deployment.apps/web serverside-applied\n"
    kubectl("scale deployment web --replicas=5")
    error = kubectl.refused("apply --server-side -f -", given=WEB)
    assert ".spec.replicas" in error
    apply(WEB.replace("  replicas: 2\n", ""))
    assert kubectl("get deployment web -o jsonpath={.spec.replicas}") == "5"


def test_a_server_side_diff_shows_the_changes(kubectl, apply):
    if kubectl.version < (1, 27):
        return  # 1.20 looks up in OpenAPI v2 whether a kind has dry runs, and finds none there
    apply(colours(a="1"))
    same = kubectl.run("diff --server-side -f -", given=colours(a="1"))
    assert (same.returncode, same.stdout) == (0, "")
    other = kubectl.run("diff --server-side -f -", given=colours(a="2"))
    assert other.returncode == 1, other.stderr
    assert '-  a: "1"' in other.stdout
    assert '+  a: "2"' in other.stdout
    assert kubectl.json("get cm colours")["data"] == {"a": "1"}


def test_a_dry_run_is_not_kept(kubectl):
    if kubectl.version < (1, 27):
        return  # as above
    output = kubectl("apply --server-side --dry-run=server -f -", given=colours(a="1"))
    assert output == "configmap/colours serverside-applied (server dry run)\n"
    assert "NotFound" in kubectl.refused("get cm colours")


def test_an_unknown_field_is_refused(kubectl):
    lax = " --validate=false"  # else kubectl finds it itself
    error = kubectl.refused(f"apply --server-side{lax} -f -", given=colours(a="1") + "dta: {}\n")
    assert "field not declared in schema" in error
    assert "NotFound" in kubectl.refused("get cm colours")


def test_client_side_applied_fields_are_migrated(kubectl, apply):
    kubectl("apply -f -", given=colours(a="1", b="2"))
    assert LAST in kubectl.json("get cm colours")["metadata"]["annotations"]
    assert apply(colours(a="3", b="2")) == "configmap/colours serverside-applied\n"
    assert kubectl.json("get cm colours")["data"] == {"a": "3", "b": "2"}
    assert ("kubectl", "Apply") in managers(kubectl, "cm colours")
    if kubectl.version >= (1, 27):
        apply(colours(a="3"))
        assert kubectl.json("get cm colours")["data"] == {"a": "3"}, "newer ones hand all their fields over"
    kubectl("apply -f -", given=colours(a="4"))
    assert kubectl.json("get cm colours")["data"]["a"] == "4", "and there is a way back"


def test_a_change_by_another_manager_is_a_conflict(kubectl):
    kubectl("apply -f -", given=colours(a="1"))
    kubectl("""patch cm colours -p '{"data":{"a":"9"}}'""")
    error = kubectl.refused("apply --server-side -f -", given=colours(a="3"))
    assert 'conflict with "kubectl-patch"' in error


def test_custom_resources_are_merged_by_the_schema_of_their_definition(kubectl, apply, server):
    kubectl("apply --server-side --force-conflicts -f -", given=DEFINITION)
    kubectl("wait --for=condition=established crd palettes.paint.example.com --timeout=30s")
    one = PALETTE.format(colours="[{name: red, code: f00}]")
    two = PALETTE.format(colours="[{name: yellow, code: ff0}]")
    eventually(lambda: kubectl.run("apply --server-side -f -", given=one).returncode == 0)
    apply(two, "--field-manager=other")
    found = kubectl.json("get palettes.paint.example.com warm")
    assert found["spec"]["colours"] == [{"name": "red", "code": "f00"}, {"name": "yellow", "code": "ff0"}]
    error = kubectl.refused(
        "apply --server-side --field-manager=other -f -", given=PALETTE.format(colours="[{name: red, code: e00}]")
    )
    assert '.spec.colours[name="red"].code' in error
    report = {"apiVersion": "paint.example.com/v1", "kind": "Palette", "metadata": {"name": "warm"},
              "status": {"mixed": 2}}  # fmt: skip
    namespace = found["metadata"]["namespace"]
    url = f"/apis/paint.example.com/v1/namespaces/{namespace}/palettes/warm/status?fieldManager=mixer&force=true"
    code, body = server.ask("PATCH", url, report, Content_Type="application/apply-patch+yaml")
    assert (code, body["status"]) == (200, {"mixed": 2})
    apply(PALETTE.format(colours="[]"))
    left = kubectl.json("get palettes.paint.example.com warm")
    assert (left["spec"]["colours"], left["status"]) == ([{"name": "yellow", "code": "ff0"}], {"mixed": 2})
