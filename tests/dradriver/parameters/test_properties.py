"""Laws that hold whatever class and claim say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.merge import merged
from podwire.dradriver.parameters.reader import Source, read
from podwire.dradriver.parameters.schema import API_VERSION, KIND

HEAD = {"apiVersion": API_VERSION, "kind": KIND}
VALUES = {
    "name": ("net1", "net2"),
    "mtu": (68, 1500, 65535),
    "mac": ("02:00:00:00:00:01",),
    "addresses": ([], ["10.9.0.2/24"], ["10.9.0.3/24", "2001:db8::3/64"]),
    "dhcp": (True, False),
    "addressPool": ("", "blue"),
    "forwarding": (True, False),
    "arpIgnore": (0, 1, 8),
    "vrf": ({}, {"name": "red"}, {"table": 7}, {"name": None}),
}


def said_of(values):
    return st.fixed_dictionaries({}, optional={name: st.sampled_from((None, *of)) for name, of in values.items()})


switches = st.dictionaries(st.sampled_from(("gro", "tso", "rx-lro", "highdma")), st.sampled_from((None, True, False)))
parameters = st.fixed_dictionaries(
    {},
    optional={
        "interface": st.none() | said_of(VALUES),
        "routes": st.sampled_from((None, [], [{"destination": "10.0.0.0/8", "scope": "link"}])),
        "ethtool": st.none() | st.fixed_dictionaries({}, optional={"features": st.none() | switches}),
        "rdma": st.sampled_from((None, True, False)),
    },
)
locked = st.lists(st.sampled_from(("interface", "interface.mtu", "routes", "ethtool.features", "rdma")), unique=True)


def of(says, class_name="", where="here"):
    return read(Source(where=where, class_name=class_name, parameters={**HEAD, **says}))


def complaint(says, class_name=""):
    try:
        of(says, class_name)
    except Refused as refused:
        return refused
    return None


def values(found):
    return {path: each.value for path, each in found.items()}


@given(parameters, parameters)
def test_merged_settings_are_those_of_the_claim_and_else_of_the_class(class_, claim):
    admin, user = of(class_, "c"), of(claim)
    found = values(merged([admin, user]))
    taken_back = [path for path, value in user.said.items() if value is None]
    for path, value in user.said.items():
        assert found.get(path) == value
    for path, value in admin.said.items():
        gone = any(path.startswith(item) for item in taken_back)
        if path not in user.said and not gone:
            assert found.get(path) == value
    assert set(found) <= set(admin.said) | set(user.said)
    assert None not in found.values()


@given(parameters, parameters)
def test_saying_something_twice_changes_nothing(class_, claim):
    admin, user = of(class_, "c"), of(claim)
    once = merged([admin, user])
    assert values(merged([admin, user, user])) == values(once)
    assert values(merged([admin, admin, user, user])) == values(once)


@given(parameters)
def test_empty_parameters_change_nothing(says):
    one, nothing = of(says), of({})
    assert values(merged([nothing, one, nothing])) == values(merged([one]))


@given(parameters, parameters, locked)
def test_locked_field_has_the_value_of_the_class_or_the_claim_is_refused(class_, claim, locks):
    admin, user = of({**class_, "locks": locks}, "c", "class"), of(claim, where="claim")
    held = [path for path in values(merged([admin])) if any(path.startswith(lock) for lock in locks)]
    before = values(merged([admin]))
    if any(path.startswith(lock) or lock.startswith(path) for path in user.said for lock in locks):
        with pytest.raises(Refused, match=r"^claim\..*: DeviceClass c has locked "):
            merged([admin, user])
    else:
        found = values(merged([admin, user]))
        assert {path: found[path] for path in held} == {path: before[path] for path in held}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(("interface", "routes", "rules", "neighbours", "ethtool", "rdma", "locks")), json_values)
def test_any_json_is_read_or_refused_with_its_field(name, value):
    for class_name in ("", "c"):
        refused = complaint({name: value}, class_name)
        assert refused is None or refused.field.startswith(f"here.{name}")


@given(st.sampled_from(sorted(VALUES)), json_values)
def test_any_value_of_a_field_is_read_or_refused_by_name(name, value):
    refused = complaint({"interface": {name: value}})
    assert refused is None or refused.field.startswith(f"here.interface.{name}")
