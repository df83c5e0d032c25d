"""Where objects lie, and resources that come and go."""

import msgspec
import pytest

from podwire.apiserver.registry import Registry
from podwire.kinds.resource import Resource, storage_prefix
from podwire.kinds.strategies import strategy_of
from podwire.kinds.strategy import CUSTOM
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.storage import Item

WIDGET = Kind(group="example.com", version="v1", resource="widgets", kind="Widget")


def resource(kind=WIDGET, **more):
    return Resource(
        kind=kind,
        shape=None,
        strategy=CUSTOM,
        prefix=storage_prefix(kind, CUSTOM),
        default=lambda _obj: None,
        validate=lambda _obj: [],
        validate_update=lambda _new, _old, _subresource: [],
        columns=list,
        cells=lambda _obj, _now: [],
        **more,
    )


@pytest.mark.parametrize(
    ("api_version", "kind", "prefix"),
    [
        ("v1", "Pod", "/registry/pods/"),
        ("v1", "Node", "/registry/minions/"),
        ("v1", "Service", "/registry/services/specs/"),
        ("v1", "Endpoints", "/registry/services/endpoints/"),
        ("v1", "ReplicationController", "/registry/controllers/"),
        ("apps/v1", "Deployment", "/registry/deployments/"),
        ("networking.k8s.io/v1", "Ingress", "/registry/ingress/"),
        ("coordination.k8s.io/v1", "Lease", "/registry/leases/"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition",
         "/registry/apiextensions.k8s.io/customresourcedefinitions/"),
    ],
)  # fmt: skip
def test_built_in_kinds_lie_where_kubernetes_keeps_them(api_version, kind, prefix):
    found = BUILTIN.of_kind(api_version, kind)
    assert storage_prefix(found, strategy_of(found)) == prefix


def test_custom_kinds_lie_under_their_group():
    assert storage_prefix(WIDGET, CUSTOM) == "/registry/example.com/widgets/"


def test_no_two_kinds_lie_in_or_under_the_same_place_unless_they_are_the_same_objects():
    places = {}
    for kind in BUILTIN.all:
        places.setdefault(storage_prefix(kind, strategy_of(kind)), []).append(kind)

    shared = {prefix: kinds for prefix, kinds in places.items() if len(kinds) > 1}
    assert {*shared} == {
        "/registry/events/",
        "/registry/horizontalpodautoscalers/",
        "/registry/deviceclasses/",
        "/registry/resourceclaims/",
        "/registry/resourceclaimtemplates/",
        "/registry/resourceslices/",
    }
    for prefix in places:
        assert not any(other != prefix and other.startswith(prefix) for other in places)


def test_a_namespaced_key_names_the_namespace_and_a_scope_ends_with_a_slash():
    widgets = resource()

    assert widgets.key("team", "w") == "/registry/example.com/widgets/team/w"
    assert widgets.scope("team") == "/registry/example.com/widgets/team/"
    assert widgets.scope("") == "/registry/example.com/widgets/"


def test_a_cluster_wide_key_does_not():
    kind = Kind(group="example.com", version="v1", resource="widgets", kind="Widget", namespaced=False)
    widgets = resource(kind)

    assert widgets.key("", "w") == "/registry/example.com/widgets/w"
    assert widgets.scope("team") == "/registry/example.com/widgets/"


def test_a_version_that_is_not_stored_is_packed_as_the_stored_one_and_served_as_itself():
    widgets = resource(stored_api_version="example.com/v0")
    value = widgets.pack({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})
    item = Item("k", value, 7, 7)

    assert msgspec.json.decode(value)["apiVersion"] == "example.com/v0"
    assert widgets.unpack(item)["apiVersion"] == "example.com/v1"
    assert msgspec.json.decode(widgets.serve(item))["apiVersion"] == "example.com/v1"


@pytest.mark.parametrize("stored", ["", "example.com/v0"], ids=["the served version", "another version"])
@pytest.mark.parametrize("was", ["example.com/v1alpha1", "example.com/v0", "example.com/v1"])
def test_objects_that_were_stored_in_an_earlier_version_are_served_whole(stored, was):
    """The storage version of a definition may change; what lies there already stays as it is until it is written."""
    value = resource().pack({"apiVersion": was, "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}})
    item = Item("k", value, 7, 7)
    widgets = resource(stored_api_version=stored)
    expected = {
        "kind": "Widget",
        "apiVersion": "example.com/v1",
        "metadata": {"name": "w", "resourceVersion": "7"},
        "spec": {"size": 1},
    }

    assert msgspec.json.decode(widgets.serve(item)) == expected
    assert widgets.unpack(item) == expected


def test_custom_resources_are_replaced_as_a_whole_and_counted():
    registry = Registry([])
    registry.replace_custom([resource()])
    before = registry.version

    assert registry.find("example.com", "v1", "widgets") is not None
    assert registry.serves_group_version("example.com", "v1")
    registry.replace_custom([])

    assert registry.find("example.com", "v1", "widgets") is None
    assert not registry.serves_group_version("example.com", "v1")
    assert registry.version > before


def test_a_custom_resource_never_hides_a_built_in_one():
    pods = resource(BUILTIN.of_kind("v1", "Pod"))
    registry = Registry([pods])

    registry.replace_custom([resource(BUILTIN.of_kind("v1", "Pod"))])

    assert registry.find("", "v1", "pods") is pods
