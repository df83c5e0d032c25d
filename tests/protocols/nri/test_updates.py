"""Updates of containers that are there already, by one plugin and by several."""

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment, Conflict
from podwire.protocols.nri.merge import Merger
from podwire.protocols.nri.updates import UpdateMerger, check_updates

UPDATED, OTHER, THIRD = "updated", "other", "third"
FIRST, SECOND = "10-first", "20-second"


def update(container: str, resources: dict[str, Any], *, ignore_failure: bool = False) -> pb.ContainerUpdate:
    document = {"container_id": container, "linux": {"resources": resources}, "ignore_failure": ignore_failure}
    return ParseDict(document, pb.ContainerUpdate())


def answer(*updates: pb.ContainerUpdate) -> pb.UpdateContainerResponse:
    return pb.UpdateContainerResponse(update=updates)


def memory(**fields: int) -> dict[str, Any]:
    return {"memory": {name: {"value": value} for name, value in fields.items()}}


def merger(**resources: Any) -> UpdateMerger:
    request = pb.UpdateContainerRequest(container=pb.Container(id=UPDATED))
    ParseDict(resources, request.linux_resources)
    return UpdateMerger(request)


def plain(resources: pb.LinuxResources) -> Any:
    return MessageToDict(resources, preserving_proto_field_name=True)


RESOURCES = [
    pytest.param({"memory": {name: {"value": True if "oom" in name or "hier" in name else 9}}}, owner, "", id=name)
    for name, owner in [
        ("limit", "MemLimit"),
        ("reservation", "MemReservation"),
        ("swap", "MemSwapLimit"),
        ("kernel", "MemKernelLimit"),
        ("kernel_tcp", "MemTCPLimit"),
        ("swappiness", "MemSwappiness"),
        ("disable_oom_killer", "MemDisableOomKiller"),
        ("use_hierarchy", "MemUseHierarchy"),
    ]
]
RESOURCES += [
    pytest.param({"cpu": {name: {"value": 9}}}, owner, "", id=name)
    for name, owner in [
        ("shares", "CPUShares"),
        ("quota", "CPUQuota"),
        ("period", "CPUPeriod"),
        ("realtime_runtime", "CPURealtimeRuntime"),
        ("realtime_period", "CPURealtimePeriod"),
    ]
]
RESOURCES += [
    pytest.param({"cpu": {"cpus": "1"}}, "CPUSetCPUs", "", id="cpus"),
    pytest.param({"cpu": {"mems": "1"}}, "CPUSetMems", "", id="mems"),
    pytest.param(
        {"hugepage_limits": [{"page_size": "2MB", "limit": 1}]}, "HugepageLimits", "2MB", id="hugepage_limits"
    ),
    pytest.param({"blockio_class": {"value": "gold"}}, "BlockioClass", "", id="blockio_class"),
    pytest.param({"rdt_class": {"value": "gold"}}, "RdtClass", "", id="rdt_class"),
    pytest.param({"unified": {"cpu.idle": "1"}}, "CgroupsUnified", "cpu.idle", id="unified"),
    pytest.param({"pids": {"limit": 9}}, "PidsLimit", "", id="pids"),
]


def test_every_field_of_resources_is_tested_here():
    fields = pb.LinuxResources.DESCRIPTOR.fields_by_name
    leaves = {*pb.LinuxMemory.DESCRIPTOR.fields_by_name, *pb.LinuxCPU.DESCRIPTOR.fields_by_name, *fields}
    rules_that_add_up = {"devices"}
    assert {resource.id for resource in RESOURCES} | rules_that_add_up == leaves - {"memory", "cpu"}


@pytest.mark.parametrize(("resources", "owner", "key"), RESOURCES)
def test_two_plugins_cannot_set_the_same_of_one_container_but_of_two(resources, owner, key):
    merged = merger()
    merged.add(FIRST, answer(update(OTHER, resources)))
    assert [(update.container_id, update.linux.resources) for update in merged.updates] == [
        (OTHER, ParseDict(resources, pb.LinuxResources()))
    ]
    with pytest.raises(Conflict) as caught:
        merged.add(SECOND, answer(update(OTHER, resources)))
    what = f"{owner} {key}".strip()
    assert str(caught.value) == f'plugins "{SECOND}" and "{FIRST}" both tried to set {what}'
    merged.add(SECOND, answer(update(THIRD, resources)))
    assert [update.container_id for update in merged.updates] == [OTHER, THIRD]


@pytest.mark.parametrize(("resources", "owner", "key"), RESOURCES)
def test_a_plugins_change_to_the_updated_container_replaces_the_request(resources, owner, key):
    merged = merger(memory={"limit": {"value": 1}}, pids={"limit": 1}, hugepage_limits=[{"page_size": "2MB"}])
    merged.add(FIRST, answer(update(UPDATED, resources)))
    wanted = merger(memory={"limit": {"value": 1}}, pids={"limit": 1}).resources
    wanted.MergeFrom(ParseDict(resources, pb.LinuxResources()))
    if "hugepage_limits" not in resources:
        wanted.hugepage_limits.add(page_size="2MB")
    assert merged.resources == wanted
    assert merged.request.linux_resources == wanted
    assert merged.updates == []
    owners = merged.owners.owners[UPDATED]
    number = pb.Field.Value(owner)
    assert (owners.compound[number].owners[key] if key else owners.simple[number]) == FIRST


def test_fields_that_no_plugin_changes_stay_as_requested():
    merged = merger(cpu={"cpus": "0-3"})
    assert plain(merged.resources) == {"cpu": {"cpus": "0-3"}}
    assert merged.updates == []


def test_updates_of_other_containers_are_separate():
    merged = merger()
    merged.add(FIRST, answer(update(UPDATED, memory(limit=5)), update(OTHER, memory(limit=6))))
    merged.add(SECOND, answer(update(THIRD, memory(limit=7))))
    assert [update.container_id for update in merged.updates] == [OTHER, THIRD]
    assert plain(merged.resources) == {"memory": {"limit": {"value": "5"}}}


def test_rules_of_the_device_cgroup_are_taken_too():
    merged = merger()
    for plugin in (FIRST, SECOND):
        merged.add(plugin, answer(update(OTHER, {"devices": [{"allow": True, "type": "c", "access": "r"}]})))
    assert len(merged.updates[0].linux.resources.devices) == 2


def test_an_update_that_may_fail_is_left_out_whole_when_it_conflicts():
    merged = merger()
    merged.add(FIRST, answer(update(OTHER, memory(limit=5))))
    merged.add(SECOND, answer(update(OTHER, memory(limit=6, reservation=7), ignore_failure=True)))
    assert plain(merged.updates[0].linux.resources) == {"memory": {"limit": {"value": "5"}}}
    assert pb.MemReservation not in merged.owners.owners[OTHER].simple


def test_an_update_that_may_fail_is_left_out_when_it_cannot_be():
    merged = merger()
    merged.add(FIRST, answer(update(OTHER, memory(limit=-5), ignore_failure=True), update(THIRD, memory(limit=6))))
    assert [update.container_id for update in merged.updates] == [THIRD]


@pytest.mark.parametrize(("one", "two"), [(True, True), (True, False), (False, True), (False, False)])
def test_an_update_by_two_may_fail_only_if_both_let_it(one, two):
    merged = merger()
    merged.add(FIRST, answer(update(OTHER, memory(limit=5), ignore_failure=one)))
    merged.add(SECOND, answer(update(OTHER, memory(reservation=5), ignore_failure=two)))
    assert [update.ignore_failure for update in merged.updates] == [one and two]


def test_an_empty_update_is_dropped():
    merged = merger()
    merged.add(FIRST, answer(update(OTHER, {})))
    assert merged.updates == []


def test_an_answer_with_one_conflict_changes_nothing():
    merged = merger()
    merged.add(FIRST, answer(update(OTHER, memory(limit=5))))
    with pytest.raises(Conflict):
        merged.add(SECOND, answer(update(THIRD, memory(limit=6)), update(OTHER, memory(limit=6))))
    assert [update.container_id for update in merged.updates] == [OTHER]
    assert THIRD not in merged.owners.owners


def test_a_bad_update_is_named_with_its_plugin_and_place():
    with pytest.raises(BadAdjustment) as caught:
        merger().add(FIRST, answer(update(OTHER, {}), update(OTHER, memory(limit=-7))))
    assert str(caught.value) == (
        f'plugin "{FIRST}": update[1].linux.resources.memory.limit: -7 is negative; -1 is for unlimited'
    )


def test_a_stopped_container_lets_plugins_update_others():
    merged = UpdateMerger(pb.StopContainerRequest(container=pb.Container(id="stopped")))
    merged.add(FIRST, pb.StopContainerResponse(update=[update(OTHER, memory(limit=5))]))
    with pytest.raises(Conflict):
        merged.add(SECOND, pb.StopContainerResponse(update=[update(OTHER, memory(limit=6))]))
    assert [update.container_id for update in merged.updates] == [OTHER]
    assert merged.resources == pb.LinuxResources()


def test_the_creation_of_one_container_can_update_others_in_the_order_of_their_naming():
    merged = Merger(pb.CreateContainerRequest(container=pb.Container(id="new")))
    merged.add(FIRST, pb.CreateContainerResponse(update=[update(OTHER, memory(limit=5))]))
    merged.add(
        SECOND,
        pb.CreateContainerResponse(update=[update(THIRD, memory(limit=5)), update(OTHER, {"cpu": {"cpus": "1"}})]),
    )
    assert [update.container_id for update in merged.updates] == [OTHER, THIRD]
    assert plain(merged.updates[0].linux.resources) == {"memory": {"limit": {"value": "5"}}, "cpu": {"cpus": "1"}}
    with pytest.raises(Conflict, match="both tried to set MemLimit"):
        merged.add("30-third", pb.CreateContainerResponse(update=[update(THIRD, memory(limit=5))]))


@pytest.mark.parametrize("ignore_failure", [True, False])
def test_a_container_that_is_being_created_cannot_be_updated(ignore_failure):
    merged = Merger(pb.CreateContainerRequest(container=pb.Container(id="new")))
    asked = update("new", memory(limit=5), ignore_failure=ignore_failure)
    with pytest.raises(BadAdjustment) as caught:
        merged.add(FIRST, pb.CreateContainerResponse(update=[asked]))
    assert str(caught.value) == f'plugin "{FIRST}": update[0].container_id: asked update of "new" during creation'


def test_unsolicited_updates_are_one_per_container():
    asked = [update(OTHER, memory(limit=5)), update(THIRD, memory(limit=6)), update(OTHER, memory(reservation=7))]
    checked = check_updates(FIRST, asked)
    assert [item.container_id for item in checked] == [OTHER, THIRD]
    assert plain(checked[0].linux.resources) == {"memory": {"limit": {"value": "5"}, "reservation": {"value": "7"}}}


def test_unsolicited_updates_cannot_conflict_with_each_other():
    with pytest.raises(Conflict, match='plugins "10-first" and "10-first" both tried to set MemLimit'):
        check_updates(FIRST, [update(OTHER, memory(limit=5)), update(OTHER, memory(limit=6))])


@pytest.mark.parametrize("container", ["", "\x00"])
def test_an_unsolicited_update_names_a_container(container):
    with pytest.raises(BadAdjustment, match=r'plugin "10-first": update\[0\]\.container_id: '):
        check_updates(FIRST, [update(container, memory(limit=5))])


@given(st.permutations([(FIRST, "limit"), (SECOND, "reservation"), ("30-x", "kernel")]))
def test_updates_that_do_not_meet_can_come_in_any_order(asked):
    merged = merger()
    for plugin, field in asked:
        merged.add(plugin, answer(update(UPDATED, memory(**{field: 5})), update(OTHER, memory(**{field: 6}))))
    assert plain(merged.resources) == {"memory": {name: {"value": "5"} for name in ("limit", "reservation", "kernel")}}
    assert len(merged.updates) == 1
