"""Each kind's own rules: what passes, what is refused with which words, and what may not change.

The tables of what passes and what is refused are in validation_tables/*.yaml.
"""

import copy
from pathlib import Path

import pytest
import yaml

from podwire.kinds.strategies import strategy_of
from podwire.protocols.k8sapi.builtin import BUILTIN

TABLES = Path(__file__).parent / "validation_tables"
GOOD = yaml.safe_load((TABLES / "good.yaml").read_text())
REFUSED = yaml.safe_load((TABLES / "refused.yaml").read_text())


def ready(manifest):
    """A manifest as it is when it comes to validation."""
    obj = copy.deepcopy(manifest)
    kind = BUILTIN.of_kind(obj["apiVersion"], obj["kind"])
    metadata = obj.setdefault("metadata", {})
    metadata.setdefault("name", "x")
    if kind.namespaced:
        metadata.setdefault("namespace", "default")
    metadata |= {"uid": "u-1", "creationTimestamp": "2024-01-01T00:00:00Z"}
    strategy_of(kind).apply_defaults(obj)
    strategy_of(kind).prepare_for_create(kind, obj)
    return kind, obj


def errors_of(manifest):
    kind, obj = ready(manifest)
    return [str(error) for error in strategy_of(kind).errors_on_create(kind, obj)]


def errors_on_update(old, changes, subresource=""):
    """Errors when the values at some paths (`spec.ports.0.port`) of a stored object are replaced."""
    kind, obj = ready(old)
    obj["metadata"]["resourceVersion"] = "1"
    new = copy.deepcopy(obj)
    for path, value in changes.items():
        *way, last = path.split(".")
        place = new
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
        place[last] = value
    return [str(item) for item in strategy_of(kind).errors_on_update(new, obj, subresource)]


@pytest.mark.parametrize("manifest", GOOD.values(), ids=GOOD.keys())
def test_a_good_object_passes_and_may_be_written_again(manifest):
    assert errors_of(manifest) == []
    assert errors_on_update(manifest, {}) == []


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_invalid_objects_are_rejected_with_upstreams_errors(case):
    assert errors_of(case["object"]) == case["errors"]


MEBIBYTE = 1024 * 1024
TOO_MUCH = "Too long: may not be more than 1048576 bytes"


@pytest.mark.parametrize(
    ("kind", "field", "size", "errors"),
    [
        ("ConfigMap", "data", MEBIBYTE, []),
        ("ConfigMap", "data", MEBIBYTE + 1, [TOO_MUCH]),
        ("Secret", "stringData", MEBIBYTE, []),
        ("Secret", "stringData", MEBIBYTE + 1, [f"data: {TOO_MUCH}"]),
    ],
)
def test_data_has_a_limit(kind, field, size, errors):
    assert errors_of({"apiVersion": "v1", "kind": kind, field: {"a": "x" * size}}) == errors


def test_lists_of_devices_have_limits():
    claim, slice_ = copy.deepcopy(GOOD["claim"]), copy.deepcopy(GOOD["slice"])
    claim["spec"]["devices"] = {"requests": [{"name": f"r{index}"} for index in range(33)]}
    assert errors_of(claim) == ["spec.devices.requests: Too many: 33: must have at most 32 items"]
    slice_["spec"]["devices"] = [{"name": f"d{index}"} for index in range(129)]
    assert errors_of(slice_) == ["spec.devices: Too many: 129: must have at most 128 items"]
    slice_["spec"]["devices"] = [{"name": f"d{index}"} for index in range(64)]
    slice_["spec"]["devices"] += [{"name": "tainted", "taints": [{"key": "k", "effect": "NoExecute"}]}]
    assert errors_of(slice_) == ["spec.devices: Too many: 65: must have at most 64 items"]


SEALED = {**GOOD["config map"], "immutable": True}
ADDRESSED = {**GOOD["service"], "spec": {"ports": [{"port": 1}], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}}
SECRET = {"apiVersion": "v1", "kind": "Secret"}
IMMUTABLE = "field is immutable when `immutable` is set"
WIDER = {"matchLabels": {"a": "b", "c": "d"}}


@pytest.mark.parametrize(
    ("old", "changes", "errors"),
    [
        pytest.param(SEALED, {"data.a": "c"}, [f"data: Forbidden: {IMMUTABLE}"], id="sealed"),
        pytest.param(SEALED, {"immutable": False}, [f"immutable: Forbidden: {IMMUTABLE}"], id="the seal itself"),
        pytest.param(SEALED, {"metadata.labels": {"a": "b"}}, [], id="labels of a sealed map"),
        pytest.param(SECRET, {"type": "a/b"}, ['type: Invalid value: "a/b": field is immutable'], id="secret type"),
        pytest.param(
            ADDRESSED,
            {"spec.clusterIP": "10.0.0.2", "spec.clusterIPs": ["10.0.0.2"]},
            ['spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set'],
            id="another cluster IP",
        ),
        pytest.param(
            ADDRESSED,
            {"spec.clusterIP": "", "spec.clusterIPs": []},
            ["spec.clusterIPs[0]: Invalid value: null: primary clusterIP can not be unset"],
            id="no cluster IP any more",
        ),
        pytest.param(
            ADDRESSED,
            {"spec.clusterIPs": ["10.0.0.1", "fd00::1"], "spec.ipFamilyPolicy": "PreferDualStack"},
            [],
            id="a second cluster IP",
        ),
        pytest.param(
            GOOD["dual-stack service"],
            {"spec.clusterIPs": ["10.0.0.1"]},
            [
                (
                    'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": '
                    "must be set to 'SingleStack' when releasing the secondary clusterIP"
                )
            ],
            id="one cluster IP less",
        ),
        pytest.param(
            ADDRESSED,
            {"spec.type": "NodePort", "spec.externalTrafficPolicy": "Local"},
            [],
            id="another type of service",
        ),
        pytest.param(
            GOOD["deployment"],
            {"spec.selector": WIDER},
            [
                'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`',
                'spec.selector: Invalid value: {"matchLabels":{"a":"b","c":"d"}}: field is immutable',
            ],
            id="another selector",
        ),
        pytest.param(GOOD["deployment"], {"spec.replicas": 5}, [], id="more replicas"),
        pytest.param(
            GOOD["stateful set"],
            {"spec.serviceName": "other"},
            ['spec.serviceName: Invalid value: "other": field is immutable'],
            id="another service of a stateful set",
        ),
        pytest.param(GOOD["job"], {"spec.parallelism": 2}, [], id="more at once"),
        pytest.param(
            GOOD["job"],
            {"spec.completions": 2},
            ["spec.completions: Invalid value: 2: field is immutable"],
            id="more in all",
        ),
        pytest.param(
            GOOD["priority class"], {"value": 1}, ["value: Forbidden: may not be changed in an update."], id="priority"
        ),
        pytest.param(
            GOOD["binding"],
            {"roleRef": {"kind": "ClusterRole", "name": "o", "apiGroup": "rbac.authorization.k8s.io"}},
            [
                (
                    'roleRef: Invalid value: {"kind":"ClusterRole","name":"o","apiGroup":"rbac.authorization.k8s.io"}: '
                    "cannot change roleRef"
                )
            ],
            id="another role",
        ),
        pytest.param(GOOD["slice"], {"spec.pool.generation": 2}, [], id="a new generation of a pool"),
        pytest.param(
            GOOD["slice"],
            {"spec.driver": "other.example.com"},
            ['spec.driver: Invalid value: "other.example.com": field is immutable'],
            id="another driver",
        ),
        pytest.param(
            GOOD["endpoint slice"],
            {"addressType": "FQDN"},
            ['addressType: Invalid value: "FQDN": field is immutable'],
            id="addresses of another kind",
        ),
        pytest.param(
            GOOD["new event"],
            {"reason": "other"},
            ['reason: Invalid value: "other": field is immutable'],
            id="another reason",
        ),
    ],
)
def test_changes_of_immutable_fields_are_rejected(old, changes, errors):
    assert errors_on_update(old, changes) == errors


def test_the_spec_of_a_claim_is_immutable():
    (error,) = errors_on_update(GOOD["claim"], {"spec.devices.requests": []})
    assert error.startswith("spec: Invalid value: {")
    assert error.endswith("}: field is immutable")


def test_a_suspended_job_may_still_move():
    job = copy.deepcopy(GOOD["job"])
    job["spec"]["suspend"] = True
    assert errors_on_update(job, {"spec.template.spec.nodeSelector": {"a": "b"}}) == []
    (error,) = errors_on_update(GOOD["job"], {"spec.template.spec.nodeSelector": {"a": "b"}})
    assert error.startswith("spec.template: Invalid value: ")


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        ({"replicas": 2, "readyReplicas": 2, "availableReplicas": 1}, []),
        (
            {"replicas": 1, "readyReplicas": 2},
            ["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        ),
        ({"updatedReplicas": -1}, ["status.updatedReplicas: Invalid value: -1: must be greater than or equal to 0"]),
        (
            {"replicas": 2, "availableReplicas": 2, "readyReplicas": 1},
            ["status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"],
        ),
    ],
)
def test_replicas_add_up(status, errors):
    assert errors_on_update(GOOD["deployment"], {"status": status}, "status") == errors


def test_a_namespaces_phase_follows_from_its_deletion():
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    assert errors_on_update(namespace, {"status.phase": "Terminating"}, "status") == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]


def test_a_namespaces_finalizers_change_through_finalize_only():
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    assert errors_on_update(namespace, {"spec.finalizers": []}, "finalize") == []
    assert errors_on_update(namespace, {"spec.finalizers": ["x"]}, "finalize") == [
        'spec.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified'
    ]


def test_networks_that_a_policy_had_before_are_accepted():
    policy = copy.deepcopy(GOOD["network policy"])
    policy["spec"] = {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.1/8"}}]}]}
    assert len(errors_of(policy)) == 1
    assert errors_on_update(policy, {}) == []


def test_a_stateful_set_mounts_its_claims():
    stateful = copy.deepcopy(GOOD["stateful set"])
    stateful["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    stateful["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/d"}]
    assert errors_of(stateful) == []
