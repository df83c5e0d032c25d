"""`managedFields` read and written, and too many managers bundled."""

import pytest

from podwire.kinds.apply.managers import (
    APPLY,
    BUNDLE,
    UPDATE,
    BadEntries,
    Manager,
    Owned,
    bundled,
    is_reset,
    read,
    written,
)

APPLIER = {
    "manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "time": "2027-01-15T08:00:00Z",
    "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}},
}  # fmt: skip
UPDATER = {
    "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2027-01-15T07:00:00Z",
    "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:phase": {}}}, "subresource": "status",
}  # fmt: skip


def test_fields_are_written_in_the_order_of_their_names():
    fields = {"f:spec": {'k:{"name":"b"}': {}, ".": {}, "f:a": {}}, "f:metadata": {}}
    (entry,) = written({Manager("kubectl", UPDATE, "v1"): Owned(fields, "v1")})
    assert [*entry["fieldsV1"]] == ["f:metadata", "f:spec"]
    assert [*entry["fieldsV1"]["f:spec"]] == [".", "f:a", 'k:{"name":"b"}']
    assert entry["fieldsV1"] == fields


@pytest.mark.parametrize("strange", [True, False])
def test_entries_are_written_as_they_were_read(strange):
    assert written(read([APPLIER, UPDATER], strange=strange)) == [APPLIER, UPDATER]


def test_entries_are_sorted_appliers_first_then_by_time():
    later = {**UPDATER, "time": "2027-01-15T09:00:00Z", "manager": "a"}
    assert written(read([later, UPDATER, APPLIER])) == [APPLIER, UPDATER, later]


def test_an_applier_has_one_entry_for_all_versions():
    assert len(read([APPLIER, {**APPLIER, "apiVersion": "v2"}])) == 1
    assert len(read([UPDATER, {**UPDATER, "apiVersion": "v2"}])) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"operation": "Delete"}, id="operation"),
        pytest.param({"apiVersion": ""}, id="version"),
        pytest.param({"fieldsType": "FieldsV2"}, id="type of fields"),
        pytest.param({"fieldsV1": {"x": {}}}, id="fields"),
        pytest.param({"fieldsV1": [1]}, id="no object"),
    ],
)
def test_invalid_entries_of_clients_are_rejected(wrong):
    with pytest.raises(BadEntries):
        read([{**APPLIER, **wrong}], strange=True)


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [([], True), ([{}], True), ([{}, {}], False), (None, False), ([APPLIER], False), ({}, False)],
)
def test_an_empty_list_asks_to_forget(entries, wanted):
    assert is_reset(entries) is wanted


def many(count, version="v1"):
    return {
        Manager(f"m{number:02}", UPDATE, version): Owned({f"f:{number}": {}}, version, f"2027-01-15T08:00:{number:02}Z")
        for number in range(count)
    }


def test_ten_updaters_stay_as_they_are():
    assert bundled(many(10)) == many(10)


def test_the_oldest_surplus_updaters_are_bundled():
    found = bundled(many(12))
    assert len(found) == 10
    bundle = found[Manager(BUNDLE, UPDATE, "v1")]
    assert (bundle.fields, bundle.time) == ({"f:0": {}, "f:1": {}, "f:2": {}}, "2027-01-15T08:00:02Z")
    assert Manager("m03", UPDATE, "v1") in found


def test_a_bundle_takes_up_more():
    found = bundled(many(11))
    found[Manager("late", UPDATE, "v1")] = Owned({"f:late": {}}, "v1", "2027-01-15T09:00:00Z")
    again = bundled(found)
    assert len(again) == 10
    assert again[Manager(BUNDLE, UPDATE, "v1")].fields == {"f:0": {}, "f:1": {}, "f:2": {}}


def test_only_updaters_of_one_version_are_bundled():
    mixed = many(6) | many(6, "v2")
    names = {manager.api_version for manager in bundled(mixed) if manager.name == BUNDLE}
    assert names == {"v1", "v2"}
    assert len(bundled({**many(1), **many(10, "v2")})) == 10


def test_appliers_are_not_counted():
    appliers = {Manager(f"a{number}", APPLY): Owned({"f:x": {}}, "v1") for number in range(20)}
    assert bundled(appliers | many(10)) == appliers | many(10)


@pytest.mark.parametrize(
    ("manager", "wanted"),
    [
        pytest.param(Manager("a", APPLY), '"a"', id="applier"),
        pytest.param(Manager("a", UPDATE, "v1"), '"a" using v1', id="updater"),
        pytest.param(Manager('a"b', UPDATE, "v1", "status"), '"a\\"b" with subresource "status" using v1', id="door"),
    ],
)
def test_a_manager_is_named_in_a_conflict(manager, wanted):
    assert str(manager) == wanted
