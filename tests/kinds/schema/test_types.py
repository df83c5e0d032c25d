"""Request bodies of built-in kinds: what Go's decoder would make of them, and what it would say."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.schema.types import Schemas
from podwire.kinds.shape import Report, TypeMismatch
from podwire.protocols.k8sapi.builtin import BUILTIN

SCHEMAS = Schemas()


def decode(body: Any, api_version: str = "v1", kind: str = "Pod", report: Report | None = None) -> Any:
    shape = SCHEMAS.shape(api_version, kind)
    assert shape is not None
    return shape.decode(body, "", report or Report())


def container(**members: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", **members}]}}


def decoded_container(**members: Any) -> dict[str, Any]:
    found: dict[str, Any] = decode(container(**members))["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("kind", BUILTIN.all, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_the_shape_of_every_builtin_kind_has_a_stable_normal_form(kind):
    empty = decode({}, kind.api_version, kind.kind)
    assert empty["metadata"] == {}
    assert decode(empty, kind.api_version, kind.kind) == empty


def test_an_unknown_kind_has_no_shape():
    assert SCHEMAS.shape("v1", "Deployment") is None
    assert SCHEMAS.shape("example.com/v1", "Pod") is None


@pytest.mark.parametrize("api_version", ["v1", "apps/v1", "policy/v1"])
def test_delete_options_belong_to_every_group(api_version):
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": ""}}
    assert decode(options, api_version, "DeleteOptions") == options


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param({"command": [], "args": None}, {}, id="empty lists and nulls vanish"),
        pytest.param({"stdin": False, "workingDir": ""}, {}, id="zeros that are no values vanish"),
        pytest.param({"securityContext": {}}, {"securityContext": {}}, id="empty objects stay"),
        pytest.param(
            {"securityContext": {"privileged": False, "runAsUser": 0}},
            {"securityContext": {"privileged": False, "runAsUser": 0}},
            id="zeros that are values stay",
        ),
        pytest.param({"ports": [{"containerPort": 0}]}, {"ports": [{"containerPort": 0}]}, id="required zeros stay"),
        pytest.param({"args": ["a", None]}, {"args": ["a", ""]}, id="a null in a list is a zero"),
        pytest.param(
            {"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi", "x": 0.5, "y": 2}}},
            {"resources": {"limits": {"cpu": "1", "memory": "1Gi", "x": "500m", "y": "2"}}},
            id="quantities are canonical",
        ),
        pytest.param(
            {"livenessProbe": {"httpGet": {"port": "http"}}},
            {"livenessProbe": {"httpGet": {"port": "http"}}},
            id="a port may be a name",
        ),
    ],
)
def test_a_container_is_normalized_as_go_would_encode_it(given, kept):
    assert decoded_container(**given) == {"name": "c", "resources": {}, **kept}


def test_objects_and_required_members_are_shown_even_when_not_given():
    assert decode({}, "v1", "Service") == {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}
    assert decode({}, "apps/v1", "ReplicaSet")["status"] == {"replicas": 0}
    assert decode({"spec": {"containers": [None]}})["spec"]["containers"] == [{"name": "", "resources": {}}]


def test_metadata_is_cleaned():
    metadata = {"name": "a", "labels": {}, "managedFields": None, "creationTimestamp": None}
    assert decode({"metadata": metadata})["metadata"] == {"name": "a"}


def test_an_empty_list_of_managed_fields_is_not_the_same_as_none():
    assert decode({"metadata": {"managedFields": []}})["metadata"] == {"managedFields": []}


def test_a_volume_of_no_kind_keeps_its_empty_source():
    volumes = [{"name": "v", "emptyDir": {}}]
    assert decode({"spec": {"volumes": volumes}})["spec"]["volumes"] == volumes


def test_the_input_is_not_changed_and_shares_no_containers_with_the_output():
    body = container(command=["a"], env=[{"name": "x", "value": "y"}])
    body["metadata"] = {"labels": {"a": "b"}}
    before = copy.deepcopy(body)
    out = decode(body)
    out["spec"]["containers"][0]["command"].append("z")
    out["metadata"]["labels"]["c"] = "d"
    assert body == before


def test_zeros_are_made_afresh():
    decode({})["status"]["phase"] = "Running"
    assert decode({})["status"] == {}


_INT32 = "Go struct field ContainerPort.spec.containers.ports.containerPort of type int32"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param([], "json: cannot unmarshal array into Go value of type v1.Pod", id="the body itself"),
        pytest.param(
            container(ports=[{"containerPort": "80"}]),
            f"json: cannot unmarshal string into {_INT32}",
            id="a string for a number",
        ),
        pytest.param(
            container(ports=[{"containerPort": 80.0}]),
            f"json: cannot unmarshal number 80.0 into {_INT32}",
            id="a fraction for an integer, even .0",
        ),
        pytest.param(
            container(ports=[{"containerPort": 1 << 31}]),
            f"json: cannot unmarshal number 2147483648 into {_INT32}",
            id="too large an integer",
        ),
        pytest.param(
            container(ports=[{"containerPort": True}]),
            f"json: cannot unmarshal bool into {_INT32}",
            id="a boolean is not an integer",
        ),
        pytest.param(
            container(ports={}),
            "json: cannot unmarshal object into Go struct field Container.spec.containers.ports"
            " of type []v1.ContainerPort",
            id="an object for a list",
        ),
        pytest.param(
            container(stdin="yes"),
            "json: cannot unmarshal string into Go struct field Container.spec.containers.stdin of type bool",
            id="a string for a boolean",
        ),
        pytest.param(
            container(env=[{"name": "A", "value": 1}]),
            "json: cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of type string",
            id="a number for a string",
        ),
        pytest.param(
            {"spec": {"containers": ["c"]}},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container",
            id="a string in a list of objects",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            id="a number in a map of strings",
        ),
        pytest.param(
            {"metadata": {"creationTimestamp": 3}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            id="a number for a time",
        ),
        pytest.param(
            container(livenessProbe={"httpGet": {"port": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field"
            " HTTPGetAction.spec.containers.livenessProbe.httpGet.port of type int32",
            id="a fraction for a port",
        ),
        pytest.param(
            container(resources={"limits": {"cpu": "much"}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="no quantity",
        ),
        pytest.param(
            container(resources={"limits": {"cpu": {}}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="an object for a quantity",
        ),
    ],
)
def test_a_wrong_type_is_reported_with_gos_message(body, text):
    with pytest.raises(TypeMismatch) as refused:
        decode(body)
    assert str(refused.value) == text


def test_a_wrong_type_below_a_path_names_the_whole_path():
    shape = SCHEMAS.shape_of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    with pytest.raises(TypeMismatch, match=r"Go struct field ObjectMeta\.metadata\.name of type string"):
        shape.decode({"name": 1}, "metadata", Report())


def test_unknown_fields_are_left_out_and_reported_with_their_path():
    report = Report()
    body = container(bogus=1, env=[{"name": "A"}, {"name": "B", "wert": "x"}])
    body["what"] = None
    out = decode(body, report=report)
    assert report.unknown == ["spec.containers[0].bogus", "spec.containers[0].env[1].wert", "what"]
    assert "what" not in out


def test_a_flood_of_unknown_fields_is_reported_in_part():
    report = Report()
    assert decode({f"x{number}": 1 for number in range(1000)}, report=report) == decode({})
    assert len(report.unknown) == 100


def test_names_are_case_sensitive():
    report = Report()
    decode({"Spec": {}}, report=report)
    assert report.unknown == ["Spec"]


def _schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels // 2):
        schema = {"properties": {"x": schema}}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


def test_a_schema_within_a_definition_is_decoded():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "string", "default": ""}},
            "b": {"additionalProperties": False, "minimum": 0, "maximum": 1.5},
            "c": {"default": {"x": None}, "enum": [1, None, "a"]},
        },
    }
    body = _schema(0)
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    out = decode(body, "apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert out["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == schema


def test_unknown_words_in_a_schema_are_reported_but_not_below_items():
    body = _schema(0)
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "properties": {"a": {"bogus": 1, "items": {"bogus": 1}}},
    }
    report = Report()
    decode(body, "apiextensions.k8s.io/v1", "CustomResourceDefinition", report)
    assert report.unknown == ["spec.versions[0].schema.openAPIV3Schema.properties.a.bogus"]


def test_a_deep_schema_is_accepted_and_a_too_deep_one_rejected():
    decode(_schema(90), "apiextensions.k8s.io/v1", "CustomResourceDefinition")
    with pytest.raises(TypeMismatch, match="exceeded max depth"):
        decode(_schema(100_000), "apiextensions.k8s.io/v1", "CustomResourceDefinition")


def test_a_too_deep_value_of_any_type_is_rejected():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(TypeMismatch, match="exceeded max depth"):
        decode({"data": value, "revision": 1}, "apps/v1", "ControllerRevision")


@pytest.mark.parametrize(
    ("path", "merge_key", "strategies"),
    [
        pytest.param(["spec", "containers"], "name", {"merge"}, id="containers by name"),
        pytest.param(["spec", "containers", 0, "ports"], "containerPort", {"merge"}, id="ports by number"),
        pytest.param(["spec", "volumes"], "name", {"merge", "retainKeys"}, id="volumes retain their keys"),
        pytest.param(["spec", "tolerations"], "", set(), id="tolerations are replaced"),
        pytest.param(["metadata", "ownerReferences"], "uid", {"merge"}, id="owners by uid"),
        pytest.param(["metadata", "finalizers"], "", {"merge"}, id="finalizers as a set"),
        pytest.param(["metadata", "labels", "anything"], "", set(), id="any label"),
    ],
)
def test_strategic_merge_finds_its_keys(path, merge_key, strategies):
    shape: Any = SCHEMAS.shape("v1", "Pod")
    field: Any = None
    for word in path:
        if isinstance(word, int):
            shape = shape.element
        else:
            field = shape.field(word)
            shape = field.shape
    assert (field.merge_key, field.strategies) == (merge_key, strategies)


def test_unknown_members_have_no_field_and_no_element():
    shape: Any = SCHEMAS.shape("v1", "Pod")
    assert shape.field("bogus") is None
    assert shape.element is None
    name = shape.field("metadata").shape.field("name").shape
    assert (name.field("x"), name.element) == (None, None)


@pytest.mark.parametrize("value", [None, 3, "x", [], {"type": 1}])
def test_a_recursive_shape_accepts_or_rejects_any_value(value):
    shape = SCHEMAS.shape_of("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
    if value is None:
        assert shape.decode(value, "", Report()) == {}
        return
    with pytest.raises(TypeMismatch):
        shape.decode(value, "", Report())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _values(shape: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Mostly right values of a shape, some wrong."""
    known = getattr(shape, "_known", None)
    if known is None and hasattr(shape, "_compiled"):
        known = shape._compiled()
    if known is not None and depth < 5:
        members = {
            name: st.deferred(lambda each=each: _values(each.field.shape, depth + 1)) for name, each in known.items()
        }
        some = sorted(members)
        return st.lists(st.sampled_from(some), max_size=4, unique=True).flatmap(
            lambda names: st.fixed_dictionaries({name: members[name] for name in names})
        )
    if shape.element is not None:
        return st.lists(_values(shape.element, depth + 1), max_size=2)
    by_type = {"string": st.sampled_from(["", "a"]), "bool": st.booleans(), "int32": st.integers(-1, 9)}
    return by_type.get(getattr(shape, "go_type", ""), JSON) | st.none()


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [("v1", "Pod"), ("v1", "Service"), ("apps/v1", "Deployment"), ("resource.k8s.io/v1", "ResourceSlice")],
)
@given(data=st.data())
def test_normal_form_is_final(api_version, kind, data):
    """Decoding the outcome again changes nothing and reports nothing."""
    body = data.draw(_values(SCHEMAS.shape(api_version, kind)))
    try:
        once = decode(body, api_version, kind)
    except TypeMismatch:
        return
    report = Report()
    assert decode(once, api_version, kind, report) == once
    assert report.unknown == []
