"""Metadata is judged alike for all kinds, with the paths and words that clients know."""

import pytest

from podwire.kinds.strategies import STRATEGIES
from podwire.kinds.strategy import CUSTOM
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

CONFIG_MAP = BUILTIN.of_kind("v1", "ConfigMap")
NAMESPACE = BUILTIN.of_kind("v1", "Namespace")
WIDGET = Kind(group="example.com", version="v1", resource="widgets", kind="Widget")

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def strategy_of(kind):
    return STRATEGIES.get((kind.group, kind.kind), CUSTOM)


def created(kind=CONFIG_MAP, **metadata):
    errors = strategy_of(kind).errors_on_create(kind, {"metadata": {"name": "x", "namespace": "ns", **metadata}})
    return [str(error) for error in errors]


def updated(new, old=None, kind=CONFIG_MAP):
    base = {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "5", "generation": 3}
    return [
        str(item)
        for item in strategy_of(kind).errors_on_update(
            {"metadata": {**base, **new}}, {"metadata": {**base, **(old or {})}}
        )
    ]


def test_good_metadata_passes():
    assert (
        created(
            labels={"app": "web", "example.com/x": ""},
            annotations={"example.com/Note": "ü" * 100},
            finalizers=["example.com/f", "orphan"],
            ownerReferences=[OWNER, {**OWNER, "controller": True}],
            managedFields=[{"operation": "Apply", "fieldsType": "FieldsV1", "manager": "m"}],
        )
        == []
    )


@pytest.mark.parametrize(
    ("metadata", "errors"),
    [
        pytest.param({"name": ""}, ["metadata.name: Required value: name or generateName is required"], id="no name"),
        pytest.param({"namespace": ""}, ["metadata.namespace: Required value"], id="no namespace"),
        pytest.param(
            {"namespace": "a.b"}, ['metadata.namespace: Invalid value: "a.b": must not contain dots'], id="namespace"
        ),
        pytest.param({"generateName": "x-"}, [], id="a prefix may end in a dash"),
        pytest.param(
            {"annotations": {"a": "x" * 262144}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
            id="long annotations",
        ),
        pytest.param(
            {"annotations": {"a": "ü" * 131072}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
            id="annotations are measured in bytes",
        ),
        pytest.param({"annotations": {"a": "x" * 262143}}, [], id="annotations that just fit"),
        pytest.param(
            {"finalizers": ["f"]},
            [
                (
                    'metadata.finalizers[0]: Invalid value: "f": '
                    "name is neither a standard finalizer name nor is it fully qualified"
                )
            ],
            id="unqualified finalizer",
        ),
        pytest.param(
            {"finalizers": ["orphan", "foregroundDeletion"]},
            [
                (
                    'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
                    "finalizer orphan and foregroundDeletion cannot be both set"
                )
            ],
            id="two ways to delete",
        ),
        pytest.param(
            {"ownerReferences": [{}]},
            [
                'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty',
                *(
                    f'metadata.ownerReferences.{field}: Invalid value: "": must not be empty'
                    for field in ("kind", "name", "uid")
                ),
            ],
            id="empty owner",
        ),
        pytest.param(
            {"ownerReferences": [{**OWNER, "apiVersion": "a/b/c"}]},
            ['metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>'],
            id="owner of no version",
        ),
        pytest.param(
            {"managedFields": [{}]},
            ["metadata.managedFields[0].operation: Required value: must not be empty"],
            id="managed by nothing",
        ),
        pytest.param(
            {"generation": -1},
            ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"],
            id="a generation below zero",
        ),
    ],
)
def test_metadata_is_validated_on_creation(metadata, errors):
    assert created(**metadata) == errors


def test_only_one_owner_controls():
    (error,) = created(ownerReferences=[{**OWNER, "controller": True}, {**OWNER, "name": "s", "controller": True}])
    assert error.endswith('Found "true" in references for ReplicaSet/r and ReplicaSet/s')


def test_labels_are_validated():
    errors = created(labels={"a b": "c d"})
    assert errors[0].startswith('metadata.labels: Invalid value: "a b": name part must consist of')
    assert errors[1].startswith('metadata.labels: Invalid value: "c d": a valid label must be an empty string or')


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "good"),
    [
        ("v1", "ConfigMap", "a.b", True),
        ("v1", "ConfigMap", "A", False),
        ("v1", "Namespace", "a.b", False),
        ("v1", "Service", "1a", True),
        ("v1", "Service", "a.b", False),
        ("apps/v1", "StatefulSet", "a.b", False),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "system:node", True),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "a/b", False),
        ("certificates.k8s.io/v1", "CertificateSigningRequest", "csr_X", True),
        ("v1", "Event", "Web.17", True),
    ],
)
def test_each_kind_has_its_names(api_version, kind, name, good):
    found = BUILTIN.of_kind(api_version, kind)
    metadata = {"name": name, **({"namespace": "ns"} if found.namespaced else {})}
    errors = strategy_of(found).errors_on_create(found, {"metadata": metadata})
    assert any(error.field == "metadata.name" for error in errors) is not good


def test_an_invalid_name_has_upstreams_message():
    assert created(NAMESPACE, name="Big", namespace="") == [f'metadata.name: Invalid value: "Big": {LABEL}']
    assert created(NAMESPACE) == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_an_invalid_generate_name_is_rejected():
    errors = created(generateName="X-", name="X-abcde")
    assert [error.split(":")[0] for error in errors] == ["metadata.generateName", "metadata.name"]


def test_custom_resources_name_their_finalizers_as_they_like():
    assert created(WIDGET, finalizers=["mine"]) == []


@pytest.mark.parametrize(
    ("new", "old", "errors"),
    [
        pytest.param({}, {}, [], id="nothing changes"),
        pytest.param(
            {"resourceVersion": ""},
            {},
            ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"],
            id="no version",
        ),
        pytest.param({"name": "y"}, {}, ['metadata.name: Invalid value: "y": field is immutable'], id="name"),
        pytest.param({"namespace": "y"}, {}, ['metadata.namespace: Invalid value: "y": field is immutable'], id="ns"),
        pytest.param({"uid": "y"}, {}, ['metadata.uid: Invalid value: "y": field is immutable'], id="uid"),
        pytest.param(
            {"generation": 2}, {}, ["metadata.generation: Invalid value: 2: must not be decremented"], id="generation"
        ),
        pytest.param(
            {"deletionTimestamp": "then"},
            {},
            ['metadata.deletionTimestamp: Invalid value: "then": field is immutable'],
            id="nobody deletes by writing",
        ),
        pytest.param(
            {"deletionTimestamp": "t", "finalizers": ["a.b/c", "a.b/d"]},
            {"deletionTimestamp": "t", "finalizers": ["a.b/c"]},
            [
                (
                    "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
                    'found new finalizers []string{"a.b/d"}'
                )
            ],
            id="no new finalizers at the end",
        ),
        pytest.param(
            {"deletionTimestamp": "t", "finalizers": []},
            {"deletionTimestamp": "t", "finalizers": ["a.b/c"]},
            [],
            id="finalizers go",
        ),
    ],
)
def test_metadata_is_validated_on_update(new, old, errors):
    assert updated(new, old) == errors
