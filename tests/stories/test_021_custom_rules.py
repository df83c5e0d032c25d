"""Custom resources with rules, and in several versions, as a user of kubectl meets them."""

import json

import pytest

FEW_KUBECTLS = "they differ in how they show refusals and warnings, and in how they find versions and schemas"

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gates.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: gates, singular: gate, kind: Gate}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.lanes, statusReplicasPath: .status.open, labelSelectorPath: .status.selector}
    selectableFields: [{jsonPath: .spec.side}]
    additionalPrinterColumns: [{name: Lanes, type: integer, jsonPath: .spec.lanes}]
    schema:
      openAPIV3Schema:
        type: object
        description: Where traffic comes in.
        required: [spec]
        properties:
          spec:
            type: object
            required: [lanes]
            properties:
              lanes: {type: integer, minimum: 0, maximum: 9}
              side: {type: string, maxLength: 5, default: left}
              networks:
                type: array
                maxItems: 8
                x-kubernetes-list-type: set
                items:
                  type: string
                  maxLength: 43
                  x-kubernetes-validations:
                  - {rule: isCIDR(self), message: must be a network}
                  - rule: "!isCIDR(self) || cidr(self) == cidr(self).masked()"
                    messageExpression: "'did you mean ' + string(cidr(self).masked()) + '?'"
            x-kubernetes-validations:
            - rule: "!has(self.networks) || self.networks.size() <= self.lanes"
              message: every network needs a lane
              fieldPath: .networks
            - rule: self.side == oldSelf.side
              message: a gate does not change sides
              reason: FieldValueForbidden
          status:
            type: object
            properties: {open: {type: integer}, selector: {type: string}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              lanes: {type: integer, description: How many may pass at once.}
              toll: {type: integer}
"""


class Gates:
    """A definition of its own for each story."""

    def __init__(self, kubectl):
        self.group = f"{kubectl.namespace}.example.com"
        self.name = f"gates.{self.group}"
        self.kubectl = kubectl

    def gate(self, version="v1", **spec):
        made = {"apiVersion": f"{self.group}/{version}", "kind": "Gate", "metadata": {"name": "north"}, "spec": spec}
        return json.dumps(made)


@pytest.fixture
def gates(kubectl):
    made = Gates(kubectl)
    kubectl("apply -f -", given=DEFINITION.replace("GROUP", made.group))
    kubectl(f"wait crd/{made.name} --for=condition=Established --timeout=20s")
    yield made
    kubectl(f"delete crd {made.name} --ignore-not-found --wait=false")


def test_a_failed_rule_returns_its_own_message(kubectl, gates):
    wrong = gates.gate(lanes=1, networks=["10.0.0.1/8", "nowhere"])
    refused = kubectl.refused("apply -f -", given=wrong)
    for expected in (
        'The Gate "north" is invalid',
        'spec.networks[0]: Invalid value: "10.0.0.1/8": did you mean 10.0.0.0/8?',
        'spec.networks[1]: Invalid value: "nowhere": must be a network',
        "spec.networks: Invalid value: every network needs a lane",
    ):
        assert expected in refused, refused
    kubectl("apply -f -", given=gates.gate(lanes=2, networks=["10.0.0.0/8", "2001:db8::/32"]))
    changed = kubectl.refused(f"patch {gates.name} north --type merge -p", '{"spec": {"side": "right"}}')
    assert "spec: Forbidden: a gate does not change sides" in changed
    scaled = kubectl.refused(f"scale {gates.name} north --replicas=1")
    assert "every network needs a lane" in scaled
    assert "scaled" in kubectl(f"scale {gates.name} north --replicas=3")
    assert kubectl(f"get {gates.name} north -o jsonpath={{.spec.lanes}}") == "3"


def test_a_definition_with_a_rule_that_makes_no_sense_is_refused_with_its_place(kubectl):
    group = f"{kubectl.namespace}.example.com"
    wrong = DEFINITION.replace("GROUP", group).replace("self.side == oldSelf.side", "self.sides == oldSelf.side")
    refused = kubectl.refused("create -f -", given=wrong)
    assert "properties[spec].x-kubernetes-validations[1].rule: Invalid value" in refused
    assert "ERROR: <input>:1:5: undefined field 'sides'" in refused
    dear = DEFINITION.replace("GROUP", group).replace("maxItems: 8", "minItems: 0")
    dear = dear.replace("maxLength: 43", "minLength: 0")
    dear = dear.replace(
        "!has(self.networks) || self.networks.size() <= self.lanes",
        "self.networks.all(a, self.networks.exists_one(b, a == b))",
    )
    refused = kubectl.refused("create -f -", given=dear)
    assert "estimated rule cost exceeds budget by factor of more than 100x" in refused
    hooked = DEFINITION.replace("GROUP", group).replace(
        "  scope: Namespaced", "  scope: Namespaced\n  conversion: {strategy: Webhook}"
    )
    assert "spec.conversion.webhookClientConfig: Required value" in kubectl.refused("create -f -", given=hooked)


def test_a_gate_is_used_in_both_its_versions(kubectl, gates):
    old = f"gates.v1beta1.{gates.group}"
    kubectl("apply -f -", given=gates.gate("v1beta1", lanes=2, toll=5))
    new_gate, old_gate = kubectl.json(f"get {gates.name} north"), kubectl.json(f"get {old} north")
    assert new_gate["apiVersion"] == f"{gates.group}/v1"
    assert new_gate["spec"] == {"lanes": 2, "side": "left"}
    assert (old_gate["apiVersion"], old_gate["spec"]) == (f"{gates.group}/v1beta1", {"lanes": 2, "toll": 5})
    kubectl(f"patch {old} north --type merge -p", '{"spec": {"lanes": 4}}')
    assert kubectl(f"get {gates.name} north --no-headers").split()[:2] == ["north", "4"]
    left, right = kubectl.together(
        f"get {gates.name} --field-selector spec.side=left -o name",
        f"get {gates.name} --field-selector spec.side=right -o name",
    )
    assert (left, right) == (f"gate.{gates.group}/north\n", "")
    versions = kubectl("api-versions").split()
    assert {f"{gates.group}/v1", f"{gates.group}/v1beta1"} <= set(versions)
    definition = kubectl.json(f"get crd {gates.name}")
    assert definition["status"]["storedVersions"] == ["v1"]
    if kubectl.version >= (1, 27):
        assert "Where traffic comes in." in kubectl(f"explain {gates.name}")
        lanes = kubectl(f"explain gates.spec.lanes --api-version={gates.group}/v1beta1")
        assert "How many may pass at once." in lanes


def test_use_of_a_deprecated_version_is_warned(kubectl, gates):
    warning = f"Warning: {gates.group}/v1beta1 Gate is deprecated; use {gates.group}/v1 Gate"
    ran = kubectl.run("apply -f -", given=gates.gate("v1beta1", lanes=1))
    assert warning in ran.stderr, ran
    assert "Warning" not in kubectl.run(f"get {gates.name} north").stderr


def test_a_watch_with_a_field_selector_sees_objects_enter_and_leave(kubectl, gates):
    kubectl("apply -f -", given=gates.gate(lanes=1))
    with kubectl.background(f"get {gates.name} -w --no-headers --field-selector spec.side=left") as watched:
        watched.until("north", "1")
        kubectl(f"patch {gates.name} north --type merge -p", '{"spec": {"lanes": 5}}')
        watched.until("north", "5")


def test_the_scale_subresource_shows_its_selector(kubectl, gates, server):
    kubectl("apply -f -", given=gates.gate(lanes=1))
    path = f"/apis/{gates.group}/v1/namespaces/{kubectl.namespace}/gates/north"
    merge = {"Content_Type": "application/merge-patch+json"}
    server.rest("PATCH", f"{path}/status", {"status": {"open": 1, "selector": "app=web"}}, **merge)
    scale = server.rest("GET", f"{path}/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 1, "selector": "app=web"})
