"""Every field that a plugin may adjust: alone, against another plugin, removed, taken over, seen, and in the end."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment, Conflict
from podwire.protocols.nri.merge import Merger
from podwire.protocols.nri.oci import adjusted_spec

ID = "c0ffee"
FIRST, SECOND, THIRD = "10-first", "20-second", "30-third"


@dataclass(frozen=True)
class Case:
    path: str
    """Of the field in ContainerAdjustment."""
    owner: str
    key: str
    one: Any
    other: Any
    seen: Callable[[pb.Container], Any] | None
    """The value that the next plugin is shown; None where a container has no such field."""
    reported: Callable[[dict[str, Any]], Any]
    seen_one: Any
    spec_one: Any
    mark: Any = None
    """The adjustment that removes it; None for a field that cannot be removed."""

    def adjust(self, *values: Any) -> pb.CreateContainerResponse:
        """An answer that sets the field to values, one after the other."""
        answer = pb.CreateContainerResponse()
        for value in values:
            nested = value
            for name in reversed(self.path.split(".")):
                nested = {name: nested}
            answer.adjust.MergeFrom(ParseDict(nested, pb.ContainerAdjustment()))
        return answer


def of_list(path: str, owner: str, key: str, one: Any, other: Any, mark: Any, **more: Any) -> Case:
    return Case(path=path, owner=owner, key=key, one=[one], other=[other], mark=mark and [mark], **more)


def resource(path: str, owner: str, value: Any, other: Any, reported: Any, key: str = "") -> Case:
    """A field of resources that is a value of its own, with the same name in the specification but for its case."""
    section, _, name = path.partition(".")
    wrapped = value if isinstance(value, str) else {"value": value}
    rewrapped = other if isinstance(other, str) else {"value": other}
    return Case(
        f"linux.resources.{path}", owner, key, wrapped, rewrapped,
        lambda each: found_value(getattr(getattr(each.linux.resources, section), name)),
        lambda spec: spec["linux"]["resources"][section][reported], value, value,
    )  # fmt: skip


def found_value(found: Any) -> Any:
    return found if isinstance(found, str) else found.value


def entry(entries: Any, attribute: str, name: str, value: str) -> Any:
    return next((getattr(entry, value) for entry in entries if getattr(entry, attribute) == name), None)


def item(entries: Any, attribute: str, name: str, value: str) -> Any:
    return next((entry.get(value) for entry in entries or () if entry[attribute] == name), None)


DEVICE = {"path": "/dev/x", "type": "c", "major": 1, "minor": 3}
CDI = "v.com/c=d"

CASES = [
    Case("annotations", "Annotations", "a", {"a": "1"}, {"a": "2"}, lambda c: c.annotations.get("a"),
         lambda s: s.get("annotations", {}).get("a"), "1", "1", {"-a": ""}),
    of_list("mounts", "Mounts", "/m", {"destination": "/m", "type": "tmpfs", "source": "one"},
            {"destination": "/m", "type": "tmpfs", "source": "two"}, {"destination": "-/m"},
            seen=lambda c: entry(c.mounts, "destination", "/m", "source"), seen_one="one",
            reported=lambda s: item(s.get("mounts"), "destination", "/m", "source"), spec_one="one"),
    of_list("env", "Env", "E", {"key": "E", "value": "1"}, {"key": "E", "value": "2"}, {"key": "-E"},
            seen=lambda c: next((item for item in c.env if item.startswith("E=")), None), seen_one="E=1",
            reported=lambda s: next((item for item in s["process"].get("env", ()) if item.startswith("E=")), None),
            spec_one="E=1"),
    of_list("rlimits", "Rlimits", "RLIMIT_NOFILE", {"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2},
            {"type": "nofile", "soft": 3, "hard": 4}, None,
            seen=lambda c: entry(c.rlimits, "type", "RLIMIT_NOFILE", "hard"), seen_one=2,
            reported=lambda s: s["process"]["rlimits"],
            spec_one=[{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2}]),
    of_list("CDI_devices", "CdiDevices", CDI, {"name": CDI}, {"name": CDI}, None,
            seen=lambda c: [device.name for device in c.CDI_devices], seen_one=[CDI],
            reported=lambda s: s["process"]["env"], spec_one=[f"CDI={CDI}"]),
    Case("args", "Args", "", ["one"], ["two"], lambda c: list(c.args), lambda s: s["process"]["args"],
         ["one"], ["one"]),
    of_list("linux.devices", "Devices", "/dev/x", DEVICE, DEVICE | {"minor": 4}, {"path": "-/dev/x"},
            seen=lambda c: entry(c.linux.devices, "path", "/dev/x", "minor"), seen_one=3,
            reported=lambda s: item(s["linux"].get("devices"), "path", "/dev/x", "minor"), spec_one=3),
    of_list("linux.namespaces", "Namespace", "ipc", {"type": "ipc", "path": "/one"}, {"type": "-ipc"}, None,
            seen=lambda c: entry(c.linux.namespaces, "type", "ipc", "path"), seen_one="/one",
            reported=lambda s: item(s["linux"]["namespaces"], "type", "ipc", "path"), spec_one="/one"),
    Case("linux.sysctl", "Sysctl", "net.a", {"net.a": "1"}, {"net.a": "2"}, lambda c: c.linux.sysctl.get("net.a"),
         lambda s: s["linux"].get("sysctl", {}).get("net.a"), "1", "1", {"-net.a": ""}),
    Case("linux.net_devices", "LinuxNetDevices", "eth1", {"eth1": {"name": "one"}}, {"eth1": {"name": "two"}},
         lambda c: c.linux.net_devices["eth1"].name if "eth1" in c.linux.net_devices else None,
         lambda s: s["linux"].get("netDevices", {}).get("eth1"), "one", {"name": "one"}, {"-eth1": {}}),
    Case("linux.cgroups_path", "CgroupsPath", "", "/one", "/two", lambda c: c.linux.cgroups_path,
         lambda s: s["linux"]["cgroupsPath"], "/one", "/one"),
    Case("linux.oom_score_adj", "OomScoreAdj", "", {"value": 0}, {"value": 7},
         lambda c: c.linux.HasField("oom_score_adj") and c.linux.oom_score_adj.value,
         lambda s: s["process"]["oomScoreAdj"], 0, 0),
    Case("linux.io_priority", "IoPriority", "", {"class": "IOPRIO_CLASS_BE", "priority": 4},
         {"class": "IOPRIO_CLASS_NONE"}, lambda c: c.linux.io_priority.priority, lambda s: s["process"]["ioPriority"],
         4, {"class": "IOPRIO_CLASS_BE", "priority": 4}),
    Case("linux.seccomp_policy", "SeccompPolicy", "",
         {"default_action": "SCMP_ACT_ERRNO", "default_errno": {"value": 38}}, {"default_action": "SCMP_ACT_LOG"},
         lambda c: c.linux.seccomp_policy.default_action, lambda s: s["linux"]["seccomp"], "SCMP_ACT_ERRNO",
         {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38}),
    Case("linux.scheduler", "LinuxSched", "", {"policy": "SCHED_RR", "priority": 5}, {"policy": "SCHED_IDLE"},
         lambda c: c.linux.scheduler.priority, lambda s: s["process"]["scheduler"], 5,
         {"policy": "SCHED_RR", "priority": 5}),
    Case("linux.memory_policy", "MemoryPolicy", "", {"mode": "MPOL_BIND", "nodes": "0-1"}, {"mode": "MPOL_LOCAL"},
         None, lambda s: s["linux"]["memoryPolicy"], None, {"mode": "MPOL_BIND", "nodes": "0-1"}),
    Case("linux.rdt.clos_id", "RdtClosID", "", {"value": "one"}, {"value": "two"}, lambda c: c.linux.rdt.clos_id.value,
         lambda s: s["linux"]["intelRdt"], "one", {"closID": "one"}),
    Case("linux.rdt.schemata", "RdtSchemata", "", {"value": ["L3:0=f"]}, {"value": []},
         lambda c: list(c.linux.rdt.schemata.value), lambda s: s["linux"]["intelRdt"], ["L3:0=f"],
         {"schemata": ["L3:0=f"]}),
    Case("linux.rdt.enable_monitoring", "RdtEnableMonitoring", "", {"value": True}, {"value": False},
         lambda c: c.linux.rdt.enable_monitoring.value, lambda s: s["linux"]["intelRdt"], True,
         {"enableMonitoring": True}),
    resource("memory.limit", "MemLimit", 10, 20, "limit"),
    resource("memory.reservation", "MemReservation", 10, 20, "reservation"),
    resource("memory.swap", "MemSwapLimit", 10, 20, "swap"),
    resource("memory.kernel", "MemKernelLimit", 10, 20, "kernel"),
    resource("memory.kernel_tcp", "MemTCPLimit", 10, 20, "kernelTCP"),
    resource("memory.swappiness", "MemSwappiness", 0, 20, "swappiness"),
    resource("memory.disable_oom_killer", "MemDisableOomKiller", True, False, "disableOOMKiller"),
    resource("memory.use_hierarchy", "MemUseHierarchy", True, False, "useHierarchy"),
    resource("cpu.shares", "CPUShares", 10, 20, "shares"),
    resource("cpu.quota", "CPUQuota", -1, 20, "quota"),
    resource("cpu.period", "CPUPeriod", 10, 20, "period"),
    resource("cpu.realtime_runtime", "CPURealtimeRuntime", 10, 20, "realtimeRuntime"),
    resource("cpu.realtime_period", "CPURealtimePeriod", 10, 20, "realtimePeriod"),
    resource("cpu.cpus", "CPUSetCPUs", "0-1", "2", "cpus"),
    resource("cpu.mems", "CPUSetMems", "0", "1", "mems"),
    of_list("linux.resources.hugepage_limits", "HugepageLimits", "2MB", {"page_size": "2MB", "limit": 10},
            {"page_size": "2MB", "limit": 20}, None,
            seen=lambda c: entry(c.linux.resources.hugepage_limits, "page_size", "2MB", "limit"), seen_one=10,
            reported=lambda s: s["linux"]["resources"]["hugepageLimits"], spec_one=[{"pageSize": "2MB", "limit": 10}]),
    Case("linux.resources.unified", "CgroupsUnified", "memory.high", {"memory.high": "1"}, {"memory.high": "2"},
         lambda c: c.linux.resources.unified.get("memory.high"), lambda s: s["linux"]["resources"]["unified"], "1",
         {"memory.high": "1"}),
    Case("linux.resources.pids", "PidsLimit", "", {"limit": 10}, {"limit": 20},
         lambda c: c.linux.resources.pids.limit, lambda s: s["linux"]["resources"]["pids"], 10, {"limit": 10}),
    Case("linux.resources.rdt_class", "RdtClass", "", {"value": "gold"}, {"value": "tin"},
         lambda c: c.linux.resources.rdt_class.value, lambda s: s["linux"]["intelRdt"], "gold", {"closID": "gold"}),
    Case("linux.resources.blockio_class", "BlockioClass", "", {"value": ""}, {"value": "tin"},
         lambda c: c.linux.resources.HasField("blockio_class"),
         lambda s: s["linux"].get("resources", {}).get("blockIO"), True, None),
]  # fmt: skip

ELSEWHERE = {
    *(f"hooks.{field.name}" for field in pb.Hooks.DESCRIPTOR.fields),  # they add up
    "linux.resources.devices",  # so do these
    "linux.rdt.remove",  # a mark, not a value
}
"""Fields that follow rules of their own, each with a test of its own below."""

REMOVABLE = [case for case in CASES if case.mark is not None]
GROUPS = {"linux", "resources", "memory", "cpu", "rdt", "hooks"}


def by_path(case: Case) -> str:
    return case.path


every_field = pytest.mark.parametrize("case", CASES, ids=by_path)
every_removable_field = pytest.mark.parametrize("case", REMOVABLE, ids=by_path)


def merger(**container: Any) -> Merger:
    return Merger(ParseDict({"container": {"id": ID, **container}}, pb.CreateContainerRequest()))


def owners_of(merged: Merger) -> dict[tuple[str, str], str]:
    """By field and key."""
    found = merged.owners.owners[ID]
    simple = {(pb.Field.Name(number), ""): plugin for number, plugin in found.simple.items()}
    return simple | {
        (pb.Field.Name(number), key): plugin
        for number, keys in found.compound.items()
        for key, plugin in keys.owners.items()
    }


def resolve(names: list[str]) -> dict[str, Any]:
    return {"env": [f"CDI={','.join(names)}"]}


def spec_of(merged: Merger, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return adjusted_spec(spec or {}, merged.adjust, cdi=resolve)


def leaves(descriptor: Any, path: str = "") -> Iterator[str]:
    for field in descriptor.fields:
        if field.name in GROUPS:
            yield from leaves(field.message_type, f"{path}{field.name}.")
        else:
            yield path + field.name


def test_every_field_of_an_adjustment_is_tested_here():
    assert {case.path for case in CASES} | ELSEWHERE == set(leaves(pb.ContainerAdjustment.DESCRIPTOR))


def test_every_owner_there_can_be_is_tested_here():
    assert {case.owner for case in CASES} | {"OciHooks", "NoField"} == set(pb.Field.keys())


@every_field
def test_a_field_that_a_plugin_sets_is_adjusted_and_owned_by_it(case):
    merged = merger()
    merged.add(FIRST, case.adjust(case.one))
    assert merged.adjust == case.adjust(case.one).adjust
    assert owners_of(merged) == {(case.owner, case.key): FIRST}


@every_field
def test_a_field_that_a_plugin_sets_is_in_the_specification(case):
    merged = merger()
    merged.add(FIRST, case.adjust(case.one))
    assert case.reported(spec_of(merged)) == case.spec_one


@pytest.mark.parametrize("case", [case for case in CASES if case.seen], ids=by_path)
def test_the_next_plugin_sees_the_adjustments_so_far(case):
    merged = merger()
    merged.add(FIRST, case.adjust(case.one))
    assert case.seen(merged.request.container) == case.seen_one


@every_field
def test_a_second_plugin_that_sets_the_same_is_refused_and_nothing_of_its_answer_is_taken(case):
    merged = merger()
    merged.add(FIRST, case.adjust(case.one))
    before = (str(merged.adjust), str(merged.request), owners_of(merged))
    answer = case.adjust(case.other)
    answer.adjust.annotations["fresh"] = "yes"
    answer.adjust.linux.sysctl["kernel.fresh"] = "1"
    with pytest.raises(Conflict) as caught:
        merged.add(SECOND, answer)
    what = f"{case.owner} {case.key}".strip()
    assert str(caught.value) == f'plugins "{SECOND}" and "{FIRST}" both tried to set {what}'
    assert (caught.value.field, caught.value.key, caught.value.plugins) == (case.owner, case.key, (SECOND, FIRST))
    assert (str(merged.adjust), str(merged.request), owners_of(merged)) == before


@every_removable_field
def test_a_later_plugin_can_remove_a_field(case):
    merged = merger()
    merged.add(FIRST, case.adjust(case.one))
    there = spec_of(merged)
    merged.add(SECOND, case.adjust(case.mark))
    assert merged.adjust == case.adjust(case.mark).adjust
    assert owners_of(merged) == {(case.owner, f"-{case.key}"): SECOND}
    assert case.seen(merged.request.container) is None
    assert case.reported(spec_of(merged, there)) is None


@every_removable_field
def test_an_original_value_can_be_removed_and_set_by_another_plugin(case):
    before = merger()
    before.add(FIRST, case.adjust(case.one))
    merged = Merger(before.request)
    merged.add(SECOND, case.adjust(case.mark))
    assert case.reported(spec_of(merged, spec_of(before))) is None
    assert case.seen(merged.request.container) is None
    merged.add(THIRD, case.adjust(case.one))
    assert case.reported(spec_of(merged, spec_of(before))) == case.spec_one
    assert owners_of(merged) == {(case.owner, case.key): THIRD}


@every_removable_field
@pytest.mark.parametrize("mark_first", [True, False], ids=["mark first", "mark last"])
def test_removing_and_setting_transfers_ownership(case, mark_first):
    merged = merger()
    merged.add(FIRST, case.adjust(case.other))
    merged.add(SECOND, case.adjust(case.mark, case.one) if mark_first else case.adjust(case.one, case.mark))
    assert merged.adjust == case.adjust(case.one).adjust
    assert owners_of(merged) == {(case.owner, case.key): SECOND}
    assert case.seen(merged.request.container) == case.seen_one
    assert case.reported(spec_of(merged)) == case.spec_one


@every_removable_field
def test_a_third_plugin_cannot_set_what_a_second_removed_from_a_first(case):
    merged = merger()
    merged.add(FIRST, case.adjust(case.one))
    merged.add(SECOND, case.adjust(case.mark))
    with pytest.raises(Conflict) as caught:
        merged.add(THIRD, case.adjust(case.one))
    assert caught.value.plugins == (THIRD, SECOND)
    merged.add(THIRD, case.adjust(case.mark, case.one))
    assert owners_of(merged) == {(case.owner, case.key): THIRD}


def test_arguments_are_taken_over_by_an_empty_first_one():
    merged = merger(args=["image"])
    args = next(case for case in CASES if case.path == "args")
    merged.add(FIRST, args.adjust(["one", ""]))
    merged.add(SECOND, args.adjust(["", "two", "2"]))
    assert list(merged.adjust.args) == list(merged.request.container.args) == ["two", "2"]
    assert owners_of(merged) == {("Args", ""): SECOND}


def test_rdt_is_removed_as_a_whole_and_ownership_transfers():
    merged = merger()
    one, two = pb.CreateContainerResponse(), pb.CreateContainerResponse()
    one.adjust.linux.rdt.clos_id.value = "one"
    one.adjust.linux.rdt.schemata.value.append("L3:0=f")
    two.adjust.linux.rdt.remove = True
    two.adjust.linux.rdt.clos_id.value = "two"
    merged.add(FIRST, one)
    merged.add(SECOND, two)
    had = {"linux": {"intelRdt": {"closID": "zero", "schemata": ["MB:0=10"]}}}
    assert spec_of(merged, had)["linux"]["intelRdt"] == {"closID": "two"}
    assert MessageToDict(merged.request.container.linux.rdt) == {"closId": {"value": "two"}}
    assert owners_of(merged)["RdtClosID", ""] == SECOND
    late = pb.CreateContainerResponse()
    late.adjust.linux.rdt.schemata.value.append("L3:0=1")
    with pytest.raises(Conflict, match='plugins "30-third" and "20-second" both tried to set RdtSchemata'):
        merged.add(THIRD, late)


def test_rdt_that_is_only_removed_is_gone():
    merged = merger()
    answer = pb.CreateContainerResponse()
    answer.adjust.linux.rdt.remove = True
    merged.add(FIRST, answer)
    assert "intelRdt" not in spec_of(merged, {"linux": {"intelRdt": {"closID": "zero"}}})["linux"]


@pytest.mark.parametrize("stage", [field.name for field in pb.Hooks.DESCRIPTOR.fields])
def test_hooks_of_several_plugins_add_up_in_their_order(stage):
    merged = merger()
    for plugin in (FIRST, SECOND):
        answer = pb.CreateContainerResponse()
        getattr(answer.adjust.hooks, stage).add(path=f"/{plugin}", args=["a"], env=["B=c"], timeout={"value": 5})
        merged.add(plugin, answer)
    assert owners_of(merged) == {("OciHooks", ""): f"{FIRST},{SECOND}"}
    assert [item.path for item in getattr(merged.request.container.hooks, stage)] == [f"/{FIRST}", f"/{SECOND}"]
    name = "".join(word.title() if number else word for number, word in enumerate(stage.split("_")))
    assert spec_of(merged, {"hooks": {name: [{"path": "/image"}]}})["hooks"] == {
        name: [
            {"path": "/image"},
            *({"path": f"/{item}", "args": ["a"], "env": ["B=c"], "timeout": 5} for item in (FIRST, SECOND)),
        ]
    }


def test_device_cgroup_rules_add_up_and_have_no_owner():
    merged = merger()
    for plugin, minor in ((FIRST, 1), (SECOND, 2)):
        answer = pb.CreateContainerResponse()
        answer.adjust.linux.resources.devices.add(allow=True, type="c", minor={"value": minor}, access="rw")
        merged.add(plugin, answer)
    assert owners_of(merged) == {}
    assert [device.minor.value for device in merged.request.container.linux.resources.devices] == [1, 2]
    assert spec_of(merged)["linux"]["resources"]["devices"] == [
        {"allow": True, "type": "c", "minor": 1, "access": "rw"},
        {"allow": True, "type": "c", "minor": 2, "access": "rw"},
    ]


def test_two_network_devices_cannot_have_one_name_in_the_container():
    merged = merger()
    for plugin, host in ((FIRST, "eth1"), (SECOND, "eth2")):
        answer = pb.CreateContainerResponse()
        answer.adjust.linux.net_devices[host].name = "data0"
        if plugin == FIRST:
            merged.add(plugin, answer)
    with pytest.raises(Conflict) as caught:
        merged.add(SECOND, answer)
    assert str(caught.value) == f'plugins "{SECOND}" and "{FIRST}" both tried to set LinuxNetDevices data0'


def test_a_network_device_cannot_have_the_name_of_one_that_the_container_has_already():
    merged = merger(linux={"net_devices": {"eth1": {"name": "data0"}}})
    answer = pb.CreateContainerResponse()
    answer.adjust.linux.net_devices["eth2"].name = "data0"
    with pytest.raises(BadAdjustment, match="'eth2' and 'eth1' would both be 'data0'"):
        merged.add(FIRST, answer)


def test_the_same_path_written_in_two_ways_is_the_same():
    merged = merger(mounts=[{"destination": "/a/b", "source": "zero"}])
    mounts = next(case for case in CASES if case.path == "mounts")
    merged.add(FIRST, mounts.adjust([{"destination": "/a//b/", "source": "one", "type": "tmpfs"}]))
    assert [(mount.destination, mount.source) for mount in merged.request.container.mounts] == [("/a/b", "one")]
    with pytest.raises(Conflict, match="Mounts /a/b"):
        merged.add(SECOND, mounts.adjust([{"destination": "/a/b", "type": "tmpfs"}]))


def test_an_empty_response_changes_nothing():
    merged = merger(args=["a"])
    before = str(merged.request)
    merged.add(FIRST, pb.CreateContainerResponse())
    merged.add(SECOND, pb.CreateContainerResponse(adjust=pb.ContainerAdjustment()))
    assert (str(merged.request), merged.adjust, merged.updates) == (before, pb.ContainerAdjustment(), [])
    assert owners_of(merged) == {}


def test_the_answers_and_the_request_of_others_are_left_as_they_are():
    request = pb.CreateContainerRequest(container=pb.Container(id=ID, env=["E=0"]))
    answer = CASES[0].adjust(CASES[0].one)
    copies = (pb.CreateContainerRequest.FromString(request.SerializeToString()), str(answer))
    Merger(request).add(FIRST, answer)
    assert (request, str(answer)) == copies
