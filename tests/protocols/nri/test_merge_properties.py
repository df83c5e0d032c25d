"""Invariants of merging, whatever the plugins answer."""

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment, Conflict, Refused
from podwire.protocols.nri.merge import Merger
from podwire.protocols.nri.oci import adjusted_spec, container_of

ID = "c"
KEYS = ("a", "b", "c", "d")
SPEC: dict[str, Any] = {
    "process": {"args": ["run"], "env": ["a=0", "b=0"], "rlimits": [{"type": "RLIMIT_CORE", "hard": 1, "soft": 1}]},
    "mounts": [{"destination": "/a", "type": "tmpfs", "source": "s", "options": []}],
    "annotations": {"a": "0"},
    "linux": {
        "sysctl": {"net.a": "0"},
        "devices": [{"path": "/dev/a", "type": "c", "major": 1, "minor": 1}],
        "resources": {"memory": {"limit": 100, "swap": 200}},
    },
}

Decision = tuple[str, str, bool]
"""A field, a key, and whether it is set or removed."""

decisions = st.one_of(
    st.tuples(
        st.sampled_from(["env", "mounts", "annotations", "devices", "sysctl", "net_devices"]),
        st.sampled_from(KEYS),
        st.booleans(),
    ),
    st.tuples(
        st.sampled_from(["rlimits", "unified", "namespaces", "memory", "cpu", "args", "cgroups_path", "CDI_devices"]),
        st.sampled_from(KEYS),
        st.just(True),
    ),
)
answers = st.lists(decisions, max_size=6, unique_by=lambda each: each[:2] if each[0] != "args" else "args")
RLIMITS = dict(zip(KEYS, ("CORE", "CPU", "NOFILE", "STACK"), strict=True))
NAMESPACES = dict(zip(KEYS, ("ipc", "pid", "network", "uts"), strict=True))
MEMORY = dict(zip(KEYS, ("limit", "reservation", "kernel", "kernel_tcp"), strict=True))
CPU = dict(zip(KEYS, ("shares", "quota", "period", "realtime_period"), strict=True))


def put(adjust: pb.ContainerAdjustment, decision: Decision, value: int) -> None:
    field, key, is_set = decision
    mark = "" if is_set else "-"
    match field:
        case "env":
            adjust.env.add(key=mark + key, value=str(value))
        case "mounts":
            adjust.mounts.add(destination=f"{mark}/{key}", type="tmpfs", source=str(value))
        case "annotations":
            adjust.annotations[mark + key] = str(value)
        case "devices":
            adjust.linux.devices.add(path=f"{mark}/dev/{key}", type="c", minor=value)
        case "sysctl":
            adjust.linux.sysctl[f"{mark}net.{key}"] = str(value)
        case "net_devices":
            adjust.linux.net_devices[mark + key].name = ""
        case _:
            put_lasting(adjust, field, key, value)


def put_lasting(adjust: pb.ContainerAdjustment, field: str, key: str, value: int) -> None:
    match field:
        case "rlimits":
            adjust.rlimits.add(type=RLIMITS[key], hard=value)
        case "unified":
            adjust.linux.resources.unified[f"x.{key}"] = str(value)
        case "namespaces":
            adjust.linux.namespaces.add(type=NAMESPACES[key], path=f"/{value}")
        case "memory":
            getattr(adjust.linux.resources.memory, MEMORY[key]).value = value
        case "cpu":
            getattr(adjust.linux.resources.cpu, CPU[key]).value = value
        case "args":
            adjust.args[:] = [key, str(value)]
        case "cgroups_path":
            adjust.linux.cgroups_path = f"/{key}"
        case "CDI_devices":
            adjust.CDI_devices.add(name=f"v.com/c={key}")


def answer_of(answer: list[Decision], value: int) -> pb.CreateContainerResponse:
    response = pb.CreateContainerResponse()
    for item in answer:
        put(response.adjust, item, value)
    return response


def fresh() -> Merger:
    return Merger(pb.CreateContainerRequest(container=container_of(SPEC, pb.Container(id=ID))))


def resolve(names: Any) -> dict[str, Any]:
    return {"env": [f"CDI_{name[-1]}=1" for name in names]}


def ordered(value: Any) -> Any:
    """The same without the order of lists, which is not what plugins decide."""
    if isinstance(value, dict):
        return {key: ordered(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((ordered(item) for item in value), key=repr)
    return value


def snapshot(merged: Merger) -> Any:
    return (
        merged.adjust.SerializeToString(deterministic=True),
        merged.request.SerializeToString(deterministic=True),
        merged.owners.SerializeToString(deterministic=True),
        [update.SerializeToString(deterministic=True) for update in merged.updates],
    )


def add_all(plugins: dict[str, pb.CreateContainerResponse]) -> Merger:
    merged = fresh()
    for plugin, answer in plugins.items():
        merged.add(plugin, answer)
    return merged


@given(answers, st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_plugins_that_decide_on_different_things_can_be_asked_in_any_order(decided, whose):
    single = {"args", "cgroups_path"}  # whatever its key, it is one decision
    kept = {(item[0] if item[0] in single else item[:2]): item for item in decided}
    shares: dict[str, list[Decision]] = {"10-a": [], "20-b": [], "30-c": []}
    for number, each in enumerate(kept.values()):
        shares[list(shares)[whose[number]]].append(each)
    plugins = {name: answer_of(share, 7) for name, share in shares.items()}
    one, other = add_all(plugins), add_all(dict(reversed(plugins.items())))
    assert MessageToDict(one.owners) == MessageToDict(other.owners)
    assert ordered(MessageToDict(one.adjust)) == ordered(MessageToDict(other.adjust))
    assert ordered(MessageToDict(one.request)) == ordered(MessageToDict(other.request))
    specs = [adjusted_spec(SPEC, item.adjust, cdi=resolve) for item in (one, other)]
    assert ordered(specs[0]) == ordered(specs[1])


def keys_in(adjust: pb.ContainerAdjustment) -> set[tuple[int, str]]:
    """Fields and keys that an adjustment decides on, found without the code that is tested."""
    linux, resources = adjust.linux, adjust.linux.resources
    found = {(pb.Env, item.key) for item in adjust.env} | {(pb.Mounts, mount.destination) for mount in adjust.mounts}
    found |= {(pb.Annotations, annotation) for annotation in adjust.annotations} | {
        (pb.Sysctl, item) for item in linux.sysctl
    }
    found |= {(pb.Devices, device.path) for device in linux.devices} | {
        (pb.Rlimits, rlimit.type) for rlimit in adjust.rlimits
    }
    found |= {(pb.LinuxNetDevices, device) for device in linux.net_devices}
    found |= {(pb.CgroupsUnified, resource) for resource in resources.unified}
    found |= {(pb.Namespace, namespace.type) for namespace in linux.namespaces}
    found |= {(pb.CdiDevices, device.name) for device in adjust.CDI_devices}
    numbers = {
        "limit": pb.MemLimit, "reservation": pb.MemReservation, "kernel": pb.MemKernelLimit,
        "kernel_tcp": pb.MemTCPLimit, "shares": pb.CPUShares, "quota": pb.CPUQuota, "period": pb.CPUPeriod,
        "realtime_period": pb.CPURealtimePeriod,
    }  # fmt: skip
    for section in (resources.memory, resources.cpu):
        found |= {(numbers[each.name], "") for each, _ in section.ListFields()}
    found |= {(pb.Args, "")} if adjust.args else set()
    return found | ({(pb.CgroupsPath, "")} if linux.cgroups_path else set())


@given(st.lists(answers, max_size=4))
def test_owners_cover_exactly_the_set_and_removed_fields(answered):
    merged = fresh()
    for number, answer in enumerate(answered):
        try:
            merged.add(f"{number}0-p", answer_of(answer, number))
        except Conflict:
            continue
    owners = merged.owners.owners[ID]
    named = {(number, "") for number in owners.simple} | {
        (number, key) for number, keys in owners.compound.items() for key in keys.owners
    }
    assert named == keys_in(merged.adjust)


@given(st.lists(answers, max_size=4))
def test_the_next_plugin_sees_the_specification_so_far(answered):
    merged = fresh()
    for number, answer in enumerate(answered):
        try:
            merged.add(f"{number}0-p", answer_of([item for item in answer if item[0] != "CDI_devices"], number + 1))
        except Conflict:
            continue
    shown = MessageToDict(merged.request.container)
    made = MessageToDict(container_of(adjusted_spec(SPEC, merged.adjust, cdi=None), pb.Container(id=ID)))
    for entry in (shown, made):  # what an adjustment brings along beside what it says
        entry["linux"]["resources"].pop("devices", None)
        entry["linux"]["resources"]["memory"].pop("swap", None)
    assert ordered(shown) == ordered(made)


@given(st.lists(answers, max_size=4))
def test_nothing_is_both_removed_and_set(answered):
    merged = fresh()
    for number, answer in enumerate(answered):
        try:
            merged.add(f"{number}0-p", answer_of(answer, number))
        except Conflict:
            continue
    found = keys_in(merged.adjust)
    assert not {(number, f"-{key}") for number, key in found} & found


@given(answers, st.sampled_from(["env", "mounts", "annotations", "devices", "sysctl"]), st.sampled_from(KEYS))
def test_a_field_that_is_removed_last_is_not_in_the_specification(answer, field, key):
    merged = fresh()
    merged.add("10-a", answer_of(answer, 1))
    merged.add("20-b", answer_of([(field, key, False)], 2))
    spec = adjusted_spec(SPEC, merged.adjust, cdi=resolve)
    there = {
        "env": [item.split("=")[0] for item in spec["process"]["env"]],
        "mounts": [mount["destination"].removeprefix("/") for mount in spec["mounts"]],
        "annotations": list(spec["annotations"]),
        "devices": [device["path"].removeprefix("/dev/") for device in spec["linux"]["devices"]],
        "sysctl": [item.removeprefix("net.") for item in spec["linux"]["sysctl"]],
    }
    assert key not in there[field]


BAD = [
    pytest.param(lambda r: r.adjust.mounts.add(destination=""), id="adjust.mounts[0].destination"),
    pytest.param(lambda r: r.adjust.linux.devices.add(path="/dev/q", type="z"), id="adjust.linux.devices[0].type"),
    pytest.param(lambda r: r.update.add(container_id=ID), id="update[0].container_id"),
]


@given(answers, answers)
def test_an_answer_that_is_refused_changes_nothing(first, second):
    merged = fresh()
    merged.add("10-a", answer_of(first, 1))
    before = snapshot(merged)
    bad = answer_of(second, 2)
    bad.update.add(container_id="other").linux.resources.memory.limit.value = 5
    bad.update.add(container_id="")
    with pytest.raises(Refused):
        merged.add("20-b", bad)
    assert snapshot(merged) == before


@pytest.mark.parametrize("spoil", BAD)
def test_one_bad_field_spoils_the_whole_answer(spoil, request):
    merged = fresh()
    before = snapshot(merged)
    bad = pb.CreateContainerResponse()
    bad.adjust.annotations["good"] = "1"
    spoil(bad)
    with pytest.raises(BadAdjustment) as caught:
        merged.add("10-a", bad)
    assert caught.value.field == request.node.callspec.id
    assert str(caught.value).startswith('plugin "10-a": ')
    assert snapshot(merged) == before


@given(answers)
def test_the_given_specification_is_left_as_it_is(answer):
    before = repr(SPEC)
    merged = fresh()
    merged.add("10-a", answer_of(answer, 1))
    adjusted_spec(SPEC, merged.adjust, cdi=resolve)
    assert repr(SPEC) == before
