"""Types from the definitions and from custom schemas; what a configuration may not be."""

import pytest

from podwire.kinds.apply.builtin import builtin_types
from podwire.kinds.apply.errors import configuration_errors, joined
from podwire.kinds.apply.fields import whole
from podwire.kinds.apply.types import (
    LEAF,
    LONG,
    MOST_FRAMES,
    MOST_KNOWN,
    Deduced,
    Leaf,
    ListMap,
    MapOf,
    SetList,
    Struct,
    shown,
)
from podwire.protocols.k8sapi.builtin import BUILTIN
from tests.kinds.apply.conftest import custom, widget

PLACES = [
    ("v1", "Pod", "metadata.finalizers", SetList, ()),
    ("v1", "Pod", "metadata.ownerReferences", ListMap, ("uid",)),
    ("v1", "Pod", "metadata.labels", MapOf, ()),
    ("v1", "Pod", "spec.containers", ListMap, ("name",)),
    ("v1", "Pod", "spec.containers.[].ports", ListMap, ("containerPort", "protocol")),
    ("v1", "Pod", "spec.containers.[].env", ListMap, ("name",)),
    ("v1", "Pod", "spec.containers.[].volumeMounts", ListMap, ("mountPath",)),
    ("v1", "Pod", "spec.containers.[].command", Leaf, ()),
    ("v1", "Pod", "spec.containers.[].resources", Struct, ()),
    ("v1", "Pod", "spec.nodeSelector", Leaf, ()),
    ("v1", "Pod", "spec.tolerations", Leaf, ()),
    ("v1", "Pod", "status.conditions", ListMap, ("type",)),
    ("v1", "Pod", "status.containerStatuses", Leaf, ()),
    ("v1", "Service", "spec.ports", ListMap, ("port", "protocol")),
    ("v1", "Service", "spec.selector", Leaf, ()),
    ("v1", "ConfigMap", "data", MapOf, ()),
    ("v1", "Event", "involvedObject", Leaf, ()),
    ("apps/v1", "Deployment", "spec.selector", Leaf, ()),
    ("apps/v1", "Deployment", "spec.template.spec.volumes", ListMap, ("name",)),
    ("networking.k8s.io/v1", "NetworkPolicy", "spec.ingress", Leaf, ()),
    ("resource.k8s.io/v1", "ResourceClaim", "status.devices", ListMap, ("driver", "device", "pool", "shareID")),
    ("resource.k8s.io/v1", "ResourceClaim", "status.reservedFor", ListMap, ("uid",)),
    ("apps/v1", "ControllerRevision", "data", Deduced, ()),
]


@pytest.mark.parametrize(("api_version", "kind", "path", "wanted", "keys"), PLACES)
def test_built_in_kinds_have_the_list_types_of_the_definitions(api_version, kind, path, wanted, keys):
    found = builtin_types().kind(api_version, kind)
    for word in path.split("."):
        found = found.element if word == "[]" else found.member(word)
    assert type(found) is wanted
    assert getattr(found, "keys", ()) == keys


def test_every_built_in_kind_has_a_type():
    for kind in BUILTIN.all:
        assert isinstance(builtin_types().kind(kind.api_version, kind.kind), Struct)


def test_undescribed_values_have_a_deduced_type():
    assert type(builtin_types().kind("example.com/v1", "Widget")) is Deduced


OMITS = (
    'associative list with keys has an element that omits all key fields ["name"]'
    " (and doesn't have default values for any key fields)"
)
WRONG = [
    pytest.param({"txt": "a"}, [".spec.txt: field not declared in schema"], id="unknown"),
    pytest.param({"struct": {"c": "1"}}, [".spec.struct.c: field not declared in schema"], id="unknown below"),
    pytest.param({"struct": "a"}, [".spec.struct: expected map, got string"], id="no map"),
    pytest.param({"items": {}}, [".spec.items: expected list, got map"], id="no list"),
    pytest.param({"count": "1"}, [".spec.count: expected numeric (int or float), got string"], id="no number"),
    pytest.param({"count": True}, [".spec.count: expected numeric (int or float), got boolean"], id="nor a boolean"),
    pytest.param({"text": 1}, [".spec.text: expected string, got int"], id="no text"),
    pytest.param({"set": ["a", "a"]}, ['.spec.set: duplicate entries for key [="a"]'], id="twice in a set"),
    pytest.param({"items": [{"name": "a"}, {"name": "a"}]}, ['.spec.items: duplicate entries for key [name="a"]'],
                 id="twice by key"),
    pytest.param({"items": [{"value": "a"}]},
                 [f".spec.items: element 0: {OMITS}"], id="no key"),
    pytest.param({"items": ["a"]}, [".spec.items: element 0: associative list with keys may not have non-map elements"],
                 id="no element"),
    pytest.param({"items": [None]}, [".spec.items: element 0: associative list with keys may not have a null element"],
                 id="null element"),
    pytest.param({"set": [{}]},
                 [".spec.set: element 0: associative list without keys has an element that's a map type"],
                 id="a map in a set"),
    pytest.param({"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
                 ['.spec.ports: duplicate entries for key [port=1,protocol="TCP"]'], id="twice by default"),
]  # fmt: skip
RIGHT = [{"open": {"a": [{"b": 1}]}}, {"either": 1}, {"either": "a"}, {"text": None}, {"items": None}, {"list": [1]}]


@pytest.mark.parametrize(("spec", "wanted"), WRONG)
def test_configurations_that_cannot_be_owned_are_rejected_with_paths(spec, wanted):
    assert configuration_errors(custom().type, widget(**spec)) == wanted


@pytest.mark.parametrize("spec", RIGHT)
def test_valid_configurations_have_no_errors(spec):
    assert not configuration_errors(custom().type, widget(**spec))


def test_several_complaints_are_joined():
    assert joined(["a", "b"]) == "errors:\n  a\n  b"
    assert joined(["a"]) == "a"


def test_the_number_of_reported_errors_is_limited():
    assert len(configuration_errors(custom().type, widget(**{f"x{number}": 1 for number in range(1000)}))) <= 100


def test_a_path_reads_like_code():
    assert shown(("f:spec", 'k:{"port":80,"protocol":"TCP"}', "f:x", 'v:"a"', "i:3")) == (
        '.spec[port=80,protocol="TCP"].x[="a"][3]'
    )


def test_a_type_does_not_remember_names_without_end():
    items = custom().type.member("spec").member("items")
    for number in range(5000):
        assert items.name({"name": f"n{number}"}) == f'k:{{"name":"n{number}"}}'
    assert len(items._known) <= 1000


def test_a_type_caches_a_limited_number_of_member_combinations():
    names = [f"m{number}" for number in range(MOST_FRAMES + 20)]
    of = Struct(lambda: {name: MapOf(LEAF) for name in names})

    for name in (*names, *names):
        assert whole(of, {name: {"a": 1}}) == {".": {}, f"f:{name}": {".": {}, "f:a": {}}}
        assert whole(of, {name: {}, "stranger": 1}) == {".": {}, f"f:{name}": {}}

    assert len(of.frames) == MOST_FRAMES


def test_a_map_remembers_so_many_names_and_no_long_ones():
    of = MapOf(LEAF)

    for name in (*(f"n{number}" for number in range(MOST_KNOWN + 20)), "x" * LONG):
        assert of.known[name] == (f"f:{name}", LEAF)

    assert len(of.known) == MOST_KNOWN
