"""Between NRI and the OCI specification, both ways."""

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from podwire.protocols.cri import cri_pb2 as cri
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment
from podwire.protocols.nri.merge import Merger
from podwire.protocols.nri.oci import adjusted_spec, container_of, resources_from, resources_to
from podwire.runtime.spec import Container, Pod, build

STRINGS = {
    "type": "c", "destination": "/m", "path": "/p", "cpus": "1", "mems": "1", "page_size": "2MB", "access": "r",
    "default_action": "SCMP_ACT_ERRNO", "action": "SCMP_ACT_ERRNO", "op": "SCMP_CMP_EQ", "cgroups_path": "/c",
    "architectures": "SCMP_ARCH_X86", "nodes": "1", "key": "K", "source": "/s",
}  # fmt: skip
BY_PATH = {
    "rlimits.type": "RLIMIT_CPU", "namespaces.type": "ipc", "CDI_devices.name": "v.com/c=d", "mounts.type": "tmpfs",
    "sysctl": "net.a", "unified": "cpu.idle", "net_devices": "eth1",
}  # fmt: skip


def filled(message: Any, path: str = "") -> Any:
    """With every field set to something that is not its default, however deep."""
    for field in message.DESCRIPTOR.fields:
        place = f"{path}.{field.name}"
        if field.message_type and field.message_type.GetOptions().map_entry:
            key = BY_PATH.get(field.name, "key")
            entries = getattr(message, field.name)
            if field.message_type.fields_by_name["value"].message_type:
                filled(entries[key], place)
            else:
                entries[key] = "text"
        elif field.message_type:
            target = getattr(message, field.name)
            filled(target.add() if field.is_repeated else target, place)
        else:
            value = sample(field, place)
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return message


def sample(field: Any, place: str) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        last_two = ".".join(place.split(".")[-2:])
        return BY_PATH.get(last_two) or STRINGS.get(field.name, "text")
    if field.cpp_type == field.CPPTYPE_BOOL:
        return True
    return 1


def whole() -> pb.ContainerAdjustment:
    """An adjustment that says something of everything."""
    adjust = filled(pb.ContainerAdjustment())
    adjust.linux.rdt.remove = False
    adjust.linux.resources.ClearField("blockio_class")  # no classes are configured
    adjust.linux.resources.ClearField("rdt_class")  # the other way to say what `rdt` says
    return adjust


def shown_as(adjust: pb.ContainerAdjustment) -> pb.Container:
    """The container that has just what is adjusted."""
    merged = Merger(pb.CreateContainerRequest(container=pb.Container(id="c")))
    merged.add("10-p", pb.CreateContainerResponse(adjust=adjust))
    return merged.request.container


def test_adjustments_survive_the_round_trip_through_a_specification():
    adjust = whole()
    shown = shown_as(adjust)
    spec = adjusted_spec({}, adjust, cdi=lambda _: {})
    found = container_of(spec, pb.Container(id="c", CDI_devices=adjust.CDI_devices))
    assert found.linux.resources.devices.pop(0) == pb.LinuxDeviceCgroup(
        allow=True, type="c", major={"value": 1}, minor={"value": 1}, access="rw"
    )  # comes with the device
    assert MessageToDict(found) == MessageToDict(shown)
    assert spec["linux"]["memoryPolicy"] == {
        "mode": "MPOL_PREFERRED", "nodes": "1", "flags": ["MPOL_F_RELATIVE_NODES"]
    }  # fmt: skip


def test_a_plugin_sees_the_specification_of_the_runtime():
    config = cri.ContainerConfig(command=["run", "me"], envs=[cri.KeyValue(key="A", value=b"1")])
    config.mounts.add(container_path="/data", host_path="/host")
    config.linux.security_context.namespace_options.pid = cri.CONTAINER
    pod = Pod(id="p", config=cri.PodSandboxConfig(hostname="h"), network="/run/netns/x", ipc="/run/ipc")
    made = Container(id="c", config=config, rootfs="/r", cgroup="pods/c", oom_score_adj=5, devices=[
        {"path": "/dev/x", "type": "c", "major": 1, "minor": 2, "fileMode": 0o600, "uid": 3, "gid": 4}
    ])  # fmt: skip
    spec = build(pod, made)
    found = container_of(spec, pb.Container(id="c", name="main", annotations={"asked": "by CRI"}))
    assert (found.id, found.name, list(found.args)) == ("c", "main", ["run", "me"])
    assert "A=1" in found.env
    assert found.annotations["asked"] == "by CRI"
    assert found.annotations["io.kubernetes.cri.sandbox-id"] == "p"
    assert [mount.destination for mount in found.mounts] == [mount["destination"] for mount in spec["mounts"]]
    assert (found.user.uid, list(found.user.additional_gids)) == (0, [0])
    assert {namespace.type: namespace.path for namespace in found.linux.namespaces}["network"] == "/run/netns/x"
    assert MessageToDict(found.linux.devices[0]) == {
        "path": "/dev/x", "type": "c", "major": "1", "minor": "2", "fileMode": {"value": 0o600},
        "uid": {"value": 3}, "gid": {"value": 4},
    }  # fmt: skip
    assert (found.linux.cgroups_path, found.linux.oom_score_adj.value) == ("/pods/c", 5)


def adjusted(spec: dict[str, Any], cdi: Any = None, **adjust: Any) -> dict[str, Any]:
    return adjusted_spec(spec, ParseDict(adjust, pb.ContainerAdjustment()), cdi=cdi)


def test_an_empty_adjustment_keeps_the_specification():
    spec = {"process": {"args": ["a"]}, "mounts": [{"destination": "/b/c"}, {"destination": "/a"}], "linux": {}}
    assert adjusted(spec) == spec


@pytest.mark.parametrize(
    ("had", "asked", "made"),
    [
        pytest.param({}, {"limit": 5}, {"limit": 5, "swap": 5}, id="swap follows the limit"),
        pytest.param({"limit": 1, "swap": 2}, {"limit": 5}, {"limit": 5, "swap": 5}, id="also where there was some"),
        pytest.param({}, {"limit": 5, "swap": 9}, {"limit": 5, "swap": 9}, id="a plugin decides on swap"),
        pytest.param({"limit": 1, "swap": 2}, {"limit": 0}, {"limit": 1, "swap": 2}, id="zero says nothing"),
        pytest.param({"limit": 1}, {"reservation": 1}, {"limit": 1, "reservation": 1}, id="the rest is kept"),
        pytest.param({}, {"limit": -1}, {"limit": -1, "swap": -1}, id="unlimited"),
    ],
)
def test_memory(had, asked, made):
    memory = {name: {"value": value} for name, value in asked.items()}
    spec = adjusted({"linux": {"resources": {"memory": had}}}, linux={"resources": {"memory": memory}})
    assert spec["linux"]["resources"]["memory"] == made


@pytest.mark.parametrize(
    ("device", "reported", "rule"),
    [
        pytest.param(
            {"type": "c", "major": 1, "minor": 3}, {"type": "c", "major": 1, "minor": 3},
            {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rw"}, id="character",
        ),
        pytest.param(
            {"type": "b", "major": 8, "file_mode": {"value": (1 << 26) | 0o660}},
            {"type": "b", "major": 8, "minor": 0, "fileMode": 0o660},
            {"allow": True, "type": "b", "major": 8, "minor": 0, "access": "rwm"}, id="block, with the bits of Go",
        ),
        pytest.param(
            {"type": "u", "uid": {"value": 0}, "gid": {"value": 7}},
            {"type": "u", "major": 0, "minor": 0, "uid": 0, "gid": 7},
            {"allow": True, "type": "c", "major": 0, "minor": 0, "access": "rw"}, id="unbuffered",
        ),
        pytest.param({"type": "p"}, {"type": "p"}, None, id="pipe"),
    ],
)  # fmt: skip
def test_a_device_node_comes_with_its_cgroup_rule(device, reported, rule):
    had = {"linux": {"devices": [{"path": "/dev/x", "type": "c"}, {"path": "/dev/y", "type": "c"}]}}
    linux = adjusted(had, linux={"devices": [{"path": "/dev/x", **device}]})["linux"]
    assert linux["devices"] == [{"path": "/dev/y", "type": "c"}, {"path": "/dev/x", **reported}]
    assert linux.get("resources", {}).get("devices", [None]) == [rule]


def test_mounts_come_shallow_ones_first():
    had = {"mounts": [{"destination": name} for name in ("/proc", "/dev", "/dev/pts", "/a/b", "/old/")]}
    spec = adjusted(had, mounts=[{"destination": "/a"}, {"destination": "/dev/pts/x"}, {"destination": "-/old"}])
    assert [mount["destination"] for mount in spec["mounts"]] == [
        "/a",
        "/dev",
        "/proc",
        "/a/b",
        "/dev/pts",
        "/dev/pts/x",
    ]


def test_a_mount_replaces_the_one_that_was_there():
    spec = adjusted({"mounts": [{"destination": "/a/", "source": "old"}]}, mounts=[{"destination": "/a"}])
    assert spec["mounts"] == [{"destination": "/a", "options": []}]


@pytest.mark.parametrize(
    ("had", "option", "made"),
    [
        (None, "rprivate", None),
        (None, "rslave", "rslave"),
        (None, "rshared", "rshared"),
        ("rshared", "rslave", "rshared"),
        ("rslave", "rshared", "rshared"),
        ("rprivate", "rslave", "rslave"),
    ],
)
def test_a_shared_mount_changes_the_root_propagation(had, option, made):
    spec = {"linux": {"rootfsPropagation": had} if had else {}}
    spec = adjusted(spec, mounts=[{"destination": "/a", "source": "/b", "options": ["rbind", option]}])
    assert spec["linux"].get("rootfsPropagation") == made


def test_variables_keep_their_place():
    spec = adjusted(
        {"process": {"env": ["A=1", "B=2", "C=3", "ODD"]}},
        env=[{"key": "D", "value": "4"}, {"key": "A", "value": "x=y"}, {"key": "-B"}, {"key": "-ODD"}],
    )
    assert spec["process"]["env"] == ["A=x=y", "C=3", "D=4"]


def test_there_is_one_limit_of_a_kind():
    had = {"process": {"rlimits": [{"type": "RLIMIT_CPU", "hard": 1, "soft": 1}]}}
    spec = adjusted(had, rlimits=[{"type": "RLIMIT_CPU", "hard": 2, "soft": 2}])
    assert spec["process"]["rlimits"] == [{"type": "RLIMIT_CPU", "hard": 2, "soft": 2}]


def test_a_namespace_is_replaced_added_or_removed():
    had = {"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/a"}, {"type": "uts"}]}}
    asked = [{"type": "network", "path": "/b"}, {"type": "-uts"}, {"type": "-cgroup"}, {"type": "ipc"}]
    assert adjusted(had, linux={"namespaces": asked})["linux"]["namespaces"] == [
        {"type": "pid"}, {"type": "network", "path": "/b"}, {"type": "ipc"}
    ]  # fmt: skip


def test_none_takes_scheduling_away():
    had = {"process": {"scheduler": {"policy": "SCHED_RR"}, "ioPriority": {"class": "IOPRIO_CLASS_RT"}}}
    spec = adjusted(had, linux={"scheduler": {"policy": "SCHED_NONE"}, "io_priority": {"class": "IOPRIO_CLASS_NONE"}})
    assert spec["process"] == {}


def test_classes_that_are_not_configured_are_refused_and_the_empty_one_clears():
    had = {"linux": {"resources": {"blockIO": {"weight": 1}}, "intelRdt": {"closID": "x"}}}
    empty = {"blockio_class": {"value": ""}, "rdt_class": {"value": ""}}
    assert adjusted(had, linux={"resources": empty})["linux"] == {"resources": {}}
    with pytest.raises(BadAdjustment) as caught:
        adjusted(had, linux={"resources": {"blockio_class": {"value": "gold"}}})
    assert str(caught.value) == 'adjust.linux.resources.blockio_class: block I/O class "gold" is not configured'


def test_hugepage_and_unified_limits_are_added():
    had = {
        "hugepageLimits": [{"pageSize": "2MB", "limit": 1}, {"pageSize": "1GB", "limit": 1}],
        "unified": {"a.b": "1"},
    }
    asked = {"hugepage_limits": [{"page_size": "2MB", "limit": 2}], "unified": {"c.d": "2"}}
    assert adjusted({"linux": {"resources": had}}, linux={"resources": asked})["linux"]["resources"] == {
        "hugepageLimits": [{"pageSize": "2MB", "limit": 2}, {"pageSize": "1GB", "limit": 1}],
        "unified": {"a.b": "1", "c.d": "2"},
    }


def test_resources_come_back_as_they_went_in():
    asked = whole().linux.resources
    section: dict[str, Any] = {}
    resources_to(asked, section)
    assert resources_from(section) == asked


def test_without_cdi_its_devices_are_refused():
    with pytest.raises(BadAdjustment) as caught:
        adjusted({}, CDI_devices=[{"name": "v.com/c=a"}, {"name": "v.com/c=b"}])
    assert str(caught.value) == ("adjust.CDI_devices: CDI is not available, so v.com/c=a, v.com/c=b cannot be resolved")


def test_a_cdi_device_applies_all_its_edits():
    asked: list[Any] = []

    def resolve(names: Any) -> dict[str, Any]:
        asked.extend(names)
        return {
            "env": ["A=cdi", "B=cdi"],
            "deviceNodes": [{"path": "/dev/g", "hostPath": "/dev/h", "type": "c", "major": 9, "minor": 8}],
            "mounts": [{"hostPath": "/lib", "containerPath": "/opt/lib", "options": ["ro", "rbind"], "type": "bind"}],
            "hooks": [{"hookName": "createContainer", "path": "/bin/h", "args": ["h"]}],
            "additionalGids": [5, 6],
        }

    had = {"process": {"env": ["A=1"], "user": {"uid": 0, "additionalGids": [5]}}, "mounts": [{"destination": "/opt"}]}
    spec = adjusted(had, cdi=resolve, CDI_devices=[{"name": "v.com/c=a"}])
    assert asked == ["v.com/c=a"]
    assert spec == {
        "process": {"env": ["A=cdi", "B=cdi"], "user": {"uid": 0, "additionalGids": [5, 6]}},
        "mounts": [
            {"destination": "/opt"},
            {"destination": "/opt/lib", "source": "/lib", "type": "bind", "options": ["ro", "rbind"]},
        ],
        "hooks": {"createContainer": [{"path": "/bin/h", "args": ["h"]}]},
        "linux": {
            "devices": [{"path": "/dev/g", "type": "c", "major": 9, "minor": 8}],
            "resources": {"devices": [{"allow": True, "type": "c", "major": 9, "minor": 8, "access": "rwm"}]},
        },
    }


def test_a_device_of_cdi_without_a_type_is_refused():
    with pytest.raises(BadAdjustment, match=r"adjust\.CDI_devices: the device node '/dev/g' has no type"):
        adjusted({}, cdi=lambda _: {"deviceNodes": [{"path": "/dev/g"}]}, CDI_devices=[{"name": "v.com/c=a"}])


def test_plugins_decide_after_cdi():
    spec = adjusted(
        {}, cdi=lambda _: {"deviceNodes": [{"path": "/dev/g", "type": "c", "major": 1, "minor": 1}]},
        CDI_devices=[{"name": "v.com/c=a"}], linux={"devices": [{"path": "-/dev/g"}]},
    )  # fmt: skip
    assert spec["linux"]["devices"] == []
