"""Admission policies, as a user of kubectl meets them: refused, warned, let pass, and gone."""

import pytest

from tests.eventually import eventually

FEW_KUBECTLS = "they differ in nothing here but their age"

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments, deployments/scale]}
  variables:
  - {name: most, expression: int(params.data.most)}
  validations:
  - expression: object.spec.replicas <= variables.most
    messageExpression: "'at most ' + string(variables.most) + ' replicas, not ' + string(object.spec.replicas)"
"""
BINDING = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec:
  policyName: NAME
  paramRef: {name: limits, parameterNotFoundAction: Deny}
  validationActions: [ACTION]
  matchResources:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
"""
MUTATING = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  matchConditions:
  - {name: mine, expression: "object.metadata.name == 'NAME'"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{data: {"by": "policy"}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
"""


class Policy:
    """One of its own for each story: it has the name of the story's namespace, and is bound there alone."""

    def __init__(self, kubectl):
        self.name = kubectl.namespace
        self.kubectl = kubectl

    def filled(self, manifest, action="Deny"):
        named = manifest.replace("NAMESPACE", self.kubectl.namespace).replace("NAME", self.name)
        return named.replace("ACTION", action)

    def bind(self, action):
        return self.kubectl("apply -f -", given=self.filled(BINDING, action))


@pytest.fixture
def policy(kubectl):
    made = Policy(kubectl)
    yield made
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy", "mutatingadmissionpolicy"):
        kubectl(f"delete {kind} {made.name} --ignore-not-found")


def test_a_policy_limit_is_enforced_reported_and_lifted(kubectl, policy):
    group = "admissionregistration.k8s.io"
    applied = kubectl("apply -f -", given=policy.filled(POLICY))
    assert applied == f"validatingadmissionpolicy.{group}/{policy.name} created\n"
    kubectl("create configmap limits --from-literal=most=3")
    assert policy.bind("Deny") == f"validatingadmissionpolicybinding.{group}/{policy.name} created\n"

    refused = kubectl.refused("create deployment web --image=nginx --replicas=5")
    denied = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{policy.name}' denied request: "
    assert f'deployments.apps "web" is forbidden: {denied}at most 3 replicas, not 5' in refused
    kubectl("create deployment web --image=nginx --replicas=3")
    assert "at most 3 replicas, not 4" in kubectl.refused("scale deployment web --replicas=4")

    kubectl("patch configmap limits --type merge -p", '{"data": {"most": "4"}}')
    kubectl("scale deployment web --replicas=4")

    policy.bind("Warn")
    warned = kubectl.run("scale deployment web --replicas=9")
    assert warned.returncode == 0, warned.stderr
    assert f"Warning: Validation failed for ValidatingAdmissionPolicy '{policy.name}'" in warned.stderr
    assert "at most 4 replicas, not 9" in warned.stderr

    kubectl(f"delete validatingadmissionpolicybinding {policy.name}")
    silent = kubectl.run("scale deployment web --replicas=10")
    assert (silent.returncode, silent.stderr) == (0, "")


def test_a_policy_is_shown_with_the_generation_that_is_in_force(kubectl, policy):
    kubectl("apply -f -", given=policy.filled(POLICY))
    shown = f"get validatingadmissionpolicy {policy.name}"
    eventually(lambda: kubectl.json(shown)["status"].get("observedGeneration") == 1)
    header, row = kubectl(shown).splitlines()
    assert header.split()[:3] == ["NAME", "VALIDATIONS", "PARAMKIND"]
    assert row.split()[:3] == [policy.name, "1", "v1/ConfigMap"]


def test_expressions_that_do_not_compile_are_refused(kubectl, policy):
    wrong = policy.filled(POLICY).replace("int(params.data.most)", "int(params.data.most")
    assert "spec.variables[0].expression: Invalid value" in kubectl.refused("apply -f -", given=wrong)


def test_a_mutating_policy_changes_what_is_created(kubectl, policy):
    kubectl("apply -f -", given=policy.filled(MUTATING))
    create = f"create configmap {policy.name} --from-literal=a=1 --dry-run=server -o jsonpath={{.data}}"
    eventually(lambda: kubectl(create) == '{"a":"1","by":"policy"}')
    kubectl(f"delete mutatingadmissionpolicy,mutatingadmissionpolicybinding {policy.name}")
    eventually(lambda: kubectl(create) == '{"a":"1"}')
