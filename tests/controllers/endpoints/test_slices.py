"""Endpoints distributed over slices: tables, and properties against a model."""

from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers.endpoints.slices import Group, Owner, distribute

PORTS = [{"name": "web", "port": 80, "protocol": "TCP"}]
OWNER = Owner(
    reference={"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s-1", "controller": True},
    namespace="shop",
    name="web",
    labels={"kubernetes.io/service-name": "web"},
)


def endpoint(number, *, ready=True):
    return {
        "addresses": [f"10.0.{number // 256}.{number % 256}"],
        "conditions": {"ready": ready},
        "targetRef": {"kind": "Pod", "uid": f"p-{number}"},
    }


def existing(name, numbers, ports=PORTS, owner=OWNER):
    slice_ = owner.new("IPv4", ports)
    slice_["metadata"] |= {"name": name, "uid": name}
    del slice_["metadata"]["generateName"]
    return {**slice_, "endpoints": [endpoint(number) for number in numbers]}


def distributed(numbers, slices, most=4, ports=PORTS):
    return distribute(OWNER, "IPv4", [Group(ports, [endpoint(number) for number in numbers])], slices, most)


def shape(slices):
    return [len(slice_["endpoints"]) for slice_ in slices]


def test_new_endpoints_fill_new_slices():
    changes = distributed(range(9), [])
    assert shape(changes.create) == [4, 4, 1]
    assert (changes.update, changes.delete) == ([], [])
    assert changes.create[0]["ports"] == PORTS
    assert changes.create[0]["metadata"]["generateName"] == "web-"


def test_nothing_is_written_when_nothing_changes():
    changes = distributed(range(6), [existing("a", range(4)), existing("b", range(4, 6))])
    assert (changes.create, changes.update, changes.delete) == ([], [], [])


def test_a_slice_that_is_written_anyway_takes_new_endpoints():
    changes = distributed([0, 1, 2, 8], [existing("a", range(4)), existing("b", ())])
    (update,) = changes.update
    assert update["metadata"]["name"] == "a"
    assert [row["targetRef"]["uid"] for row in update["endpoints"]] == ["p-0", "p-1", "p-2", "p-8"]


def test_an_unchanged_slice_is_written_rather_than_a_new_one_created():
    changes = distributed([0, 1, 2, 3, 4, 5, 6], [existing("a", range(4)), existing("b", range(4, 6))])
    assert [row["metadata"]["name"] for row in changes.update] == ["b"]
    assert changes.create == []


def test_a_slice_without_endpoints_goes_and_the_last_one_becomes_a_placeholder():
    changes = distributed([0], [existing("a", [0]), existing("b", [1])])
    assert [row["metadata"]["name"] for row in changes.delete] == ["b"]
    changes = distribute(OWNER, "IPv4", [], [existing("a", [0])])
    assert [(row["metadata"]["name"], row["endpoints"], row["ports"]) for row in changes.update] == [("a", [], [])]
    placeholder = existing("a", (), ports=())
    changes = distribute(OWNER, "IPv4", [], [placeholder])
    assert (changes.create, changes.update, changes.delete) == ([], [], [])


def test_other_ports_are_in_other_slices():
    other = [{"name": "web", "port": 8080, "protocol": "TCP"}]
    groups = [Group(PORTS, [endpoint(0)]), Group(other, [endpoint(1)])]
    changes = distribute(OWNER, "IPv4", groups, [existing("a", [0, 1])])
    assert shape(changes.update) == [1]
    assert [row["ports"] for row in changes.create] == [other]


def test_slices_of_another_owner_are_deleted():
    stranger = Owner(reference={"uid": "s-0"}, namespace="shop", name="web", labels=OWNER.labels)
    changes = distributed([0], [existing("a", [0], owner=stranger)])
    assert [row["metadata"]["name"] for row in changes.delete] == ["a"]
    assert shape(changes.create) == [1]


def test_changed_labels_are_written():
    old = existing("a", [0])
    old["metadata"]["labels"] = {"old": "label"}
    (update,) = distributed([0], [old]).update
    assert update["metadata"]["labels"] == OWNER.labels


@given(st.lists(st.sets(st.integers(0, 30)), min_size=1, max_size=8), st.integers(1, 5))
def test_after_any_changes_every_endpoint_is_in_exactly_one_slice(rounds, most):
    slices, names = {}, iter(range(10_000))
    for numbers in rounds:
        changes = distributed(sorted(numbers), list(slices.values()), most) if numbers else distribute(
            OWNER, "IPv4", [], list(slices.values()), most
        )  # fmt: skip
        for row in changes.delete:
            del slices[row["metadata"]["name"]]
        for row in changes.update:
            slices[row["metadata"]["name"]] = row
        for row in changes.create:
            name = f"n-{next(names)}"
            row["metadata"] |= {"name": name, "uid": name}
            slices[name] = row
        found = [row["targetRef"]["uid"] for slice_ in slices.values() for row in slice_["endpoints"]]
        assert sorted(found) == sorted(f"p-{number}" for number in numbers)
        assert all(len(slice_["endpoints"]) <= most for slice_ in slices.values())
        assert slices
