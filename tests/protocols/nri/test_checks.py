"""Text that no answer may contain: the field and the reason."""

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.checks import check_adjustment
from podwire.protocols.nri.errors import BadAdjustment


def linux(**adjust: Any) -> dict[str, Any]:
    return {"linux": adjust}


def resources(**asked: Any) -> dict[str, Any]:
    return linux(resources=asked)


def device(**more: Any) -> dict[str, Any]:
    return linux(devices=[{"path": "/dev/x", "type": "c"} | more])


def seccomp(**more: Any) -> dict[str, Any]:
    return linux(seccomp_policy={"default_action": "SCMP_ACT_ALLOW"} | more)


def syscall(**more: Any) -> dict[str, Any]:
    return seccomp(syscalls=[{"names": ["mount"], "action": "SCMP_ACT_ERRNO"} | more])


def hook(**more: Any) -> dict[str, Any]:
    return {"hooks": {"create_runtime": [{"path": "/h"} | more]}}


BAD = [
    ("annotations['']", {"annotations": {"": "x"}}, "has no name"),
    ("annotations['-']", {"annotations": {"-": ""}}, "has no name"),
    ("annotations['a']", {"annotations": {"a": "\0"}}, "contains a zero byte"),
    ("annotations['\\x00']", {"annotations": {"\0": "a"}}, "contains a zero byte"),
    ("mounts[0].destination", {"mounts": [{"source": "/x"}]}, "is empty"),
    ("mounts[0].destination", {"mounts": [{"destination": "-"}]}, "is empty"),
    ("mounts[0].destination", {"mounts": [{"destination": "x"}]}, "'x' is not an absolute path"),
    ("mounts[0].destination", {"mounts": [{"destination": "/a/../b"}]}, "'/a/../b' must not contain '..'"),
    ("mounts[0].source", {"mounts": [{"destination": "/x", "type": "bind"}]}, "a bind mount needs one"),
    ("mounts[0].source", {"mounts": [{"destination": "/x", "options": ["rbind"]}]}, "a bind mount needs one"),
    ("mounts[0].options", {"mounts": [{"destination": "/x", "options": [""]}]}, "one of them is empty"),
    ("mounts[0].options[1]", {"mounts": [{"destination": "/x", "options": ["a", "\0"]}]}, "contains a zero byte"),
    ("mounts[1].destination", {"mounts": [{"destination": "/x"}, {"destination": "//x/"}]}, "'/x' is given twice"),
    ("env[0].key", {"env": [{"value": "x"}]}, "'' is not a name of an environment variable"),
    ("env[0].key", {"env": [{"key": "A=B"}]}, "'A=B' is not a name of an environment variable"),
    ("env[0].value", {"env": [{"key": "A", "value": "\0"}]}, "contains a zero byte"),
    ("env[1].key", {"env": [{"key": "A"}, {"key": "A"}]}, "'A' is given twice"),
    ("env[1].key", {"env": [{"key": "-A"}, {"key": "-A"}]}, "'-A' is given twice"),
    ("args", {"args": [""]}, "names nothing to run"),
    ("args", {"args": ["", "", "x"]}, "names nothing to run"),
    ("hooks.create_runtime[0].path", hook(path=""), "is empty"),
    ("hooks.create_runtime[0].path", hook(path="h"), "'h' is not an absolute path"),
    ("hooks.create_runtime[0].timeout", hook(timeout={"value": 0}), "0 is not > 0"),
    ("rlimits[0].type", {"rlimits": [{"type": "RLIMIT_X"}]}, "'RLIMIT_X' is not a resource limit"),
    ("rlimits[0].type", {"rlimits": [{"type": ""}]}, "'' is not a resource limit"),
    ("rlimits[0].soft", {"rlimits": [{"type": "nofile", "soft": 2, "hard": 1}]}, "2 is more than the hard limit 1"),
    ("rlimits[1].type", {"rlimits": [{"type": "CPU"}, {"type": "RLIMIT_CPU"}]}, "'RLIMIT_CPU' is given twice"),
    ("CDI_devices[0].name", {"CDI_devices": [{"name": "gpu"}]}, "'gpu' is not a name such as vendor.com/class=name"),
    ("CDI_devices[1].name", {"CDI_devices": [{"name": "v.com/c=d"}] * 2}, "'v.com/c=d' is given twice"),
    ("linux.devices[0].path", device(path=""), "is empty"),
    ("linux.devices[0].path", device(path="-"), "is empty"),
    ("linux.devices[0].path", device(path="dev/x"), "'dev/x' is not an absolute path"),
    ("linux.devices[0].type", device(type="x"), "'x' must be one of b, c, u, p"),
    ("linux.devices[0].type", device(type=""), "'' must be one of b, c, u, p"),
    ("linux.devices[0].major", device(major=-1), "-1 is negative"),
    ("linux.devices[0].minor", device(minor=-2), "-2 is negative"),
    ("linux.cgroups_path", linux(cgroups_path="/a/../b"), "'/a/../b' must not contain '..'"),
    ("linux.oom_score_adj", linux(oom_score_adj={"value": 1001}), "1001 is not between -1000 and 1000"),
    ("linux.io_priority.class", linux(io_priority={"class": 9}), "9 is not known"),
    ("linux.io_priority.priority", linux(io_priority={"priority": 8}), "8 is not between 0 and 7"),
    ("linux.seccomp_policy.default_action", seccomp(default_action="allow"), "'allow' is not an action"),
    ("linux.seccomp_policy.default_action", seccomp(default_action=""), "'' is not an action"),
    ("linux.seccomp_policy.architectures[0]", seccomp(architectures=["x86"]), "'x86' is not a SCMP_ARCH_…"),
    ("linux.seccomp_policy.syscalls[0].names", syscall(names=[]), "no system call is named"),
    ("linux.seccomp_policy.syscalls[0].action", syscall(action=""), "'' is not an action"),
    ("linux.seccomp_policy.syscalls[0].args[0].op", syscall(args=[{"op": "="}]), "'=' is not an operator"),
    ("linux.seccomp_policy.syscalls[0].args[0].index", syscall(args=[{"index": 6}]), "6 is not between 0 and 5"),
    ("linux.namespaces[0].type", linux(namespaces=[{"type": "net"}]), "'net' must be one of pid, network,"),
    ("linux.namespaces[0].path", linux(namespaces=[{"type": "ipc", "path": "x"}]), "'x' is not an absolute path"),
    ("linux.namespaces[1].type", linux(namespaces=[{"type": "ipc"}, {"type": "-ipc"}]), "'ipc' is given twice"),
    ("linux.sysctl['']", linux(sysctl={"": "1"}), "'' is not a name such as net.ipv4.ip_forward"),
    ("linux.sysctl['a']", linux(sysctl={"a": "1"}), "'a' is not a name such as"),
    ("linux.sysctl['-a..b']", linux(sysctl={"-a..b": "1"}), "'a..b' is not a name such as"),
    ("linux.sysctl['../a']", linux(sysctl={"../a": "1"}), "'../a' is not a name such as"),
    ("linux.net_devices['']", linux(net_devices={"": {}}), "is empty"),
    ("linux.net_devices['a/b']", linux(net_devices={"a/b": {}}), "'a/b' is not a name of a network device"),
    ("linux.net_devices['e'].name", linux(net_devices={"e": {"name": "a b"}}), "'a b' is not a name of"),
    ("linux.net_devices['e'].name", linux(net_devices={"e": {"name": ".."}}), "'..' is not a name of"),
    ("linux.net_devices['e'].name", linux(net_devices={"e": {"name": "x" * 16}}), "is longer than 15 bytes"),
    ("linux.scheduler.policy", linux(scheduler={"policy": 17}), "17 is not known"),
    ("linux.scheduler.nice", linux(scheduler={"nice": 20}), "20 is not between -20 and 19"),
    ("linux.scheduler.priority", linux(scheduler={"priority": -1}), "-1 is not between 0 and 99"),
    ("linux.scheduler.flags[0]", linux(scheduler={"flags": [99]}), "99 is not known"),
    ("linux.rdt.clos_id", linux(rdt={"clos_id": {"value": "a/b"}}), "'a/b' is not a name of a class of service"),
    ("linux.rdt.schemata[0]", linux(rdt={"schemata": {"value": ["a\nb"]}}), "is more than one line"),
    ("linux.memory_policy.mode", linux(memory_policy={"mode": 9}), "9 is not known"),
    ("linux.memory_policy.nodes", linux(memory_policy={"nodes": "a"}), "'a' is not a list of numbers such as 0-3,5"),
    ("linux.memory_policy.flags[0]", linux(memory_policy={"flags": [9]}), "9 is not known"),
    *(
        (f"linux.resources.memory.{name}", resources(memory={name: {"value": -2}}), "-2 is negative")
        for name in ("limit", "reservation", "swap", "kernel", "kernel_tcp")
    ),
    ("linux.resources.memory.swappiness", resources(memory={"swappiness": {"value": 101}}), "101 is not between 0"),
    (
        "linux.resources.memory.swap", resources(memory={"limit": {"value": 9}, "swap": {"value": 8}}),
        "8 is less than the limit 9",
    ),
    ("linux.resources.cpu.quota", resources(cpu={"quota": {"value": -2}}), "-2 is negative"),
    ("linux.resources.cpu.realtime_runtime", resources(cpu={"realtime_runtime": {"value": -2}}), "-2 is negative"),
    ("linux.resources.cpu.cpus", resources(cpu={"cpus": "0-"}), "'0-' is not a list of numbers"),
    ("linux.resources.cpu.mems", resources(cpu={"mems": "0,,1"}), "'0,,1' is not a list of numbers"),
    ("linux.resources.hugepage_limits[0].page_size", resources(hugepage_limits=[{"page_size": "2"}]), "not a size"),
    (
        "linux.resources.hugepage_limits[1].page_size", resources(hugepage_limits=[{"page_size": "2MB"}] * 2),
        "'2MB' is given twice",
    ),
    ("linux.resources.unified['../x']", resources(unified={"../x": "1"}), "is not a cgroup file"),
    ("linux.resources.pids.limit", resources(pids={"limit": -2}), "-2 is negative"),
    ("linux.resources.devices[0].type", resources(devices=[{"type": "u"}]), "'u' must be one of a, b and c"),
    ("linux.resources.devices[0].access", resources(devices=[{"access": "x"}]), "'x' may hold r, w and m only"),
    ("linux.resources.devices[0].major", resources(devices=[{"major": {"value": -2}}]), "-2 is negative"),
    ("linux.resources.devices[0].minor", resources(devices=[{"minor": {"value": -2}}]), "-2 is negative"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "adjust", "reason"), BAD, ids=[f"{number} {each[0]}" for number, each in enumerate(BAD)]
)
def test_an_invalid_adjustment_is_rejected_with_field_and_reason(field, adjust, reason):
    with pytest.raises(BadAdjustment) as caught:
        check_adjustment(ParseDict(adjust, pb.ContainerAdjustment()))
    assert caught.value.field == f"adjust.{field}"
    assert reason in caught.value.reason
    assert str(caught.value) == f"adjust.{field}: {caught.value.reason}"


def test_two_network_devices_of_one_answer_cannot_have_one_name():
    with pytest.raises(BadAdjustment, match="'a' is the name of"):
        check_adjustment(ParseDict(linux(net_devices={"a": {}, "b": {"name": "a"}}), pb.ContainerAdjustment()))


FINE = [
    {},
    {"annotations": {"a": "", "-a": "", "-b": ""}},
    {"mounts": [{"destination": "-/x"}, {"destination": "/x", "type": "tmpfs", "source": "tmpfs", "options": ["ro"]}]},
    {"mounts": [{"destination": "/"}, {"destination": "/.../a"}]},
    {"env": [{"key": "-A"}, {"key": "A"}, {"key": "B", "value": "a=b\nc"}]},
    {"args": ["a", "", ""]},
    {"args": ["", "a"]},
    hook(args=["h", ""], env=["A=b"], timeout={"value": 1}),
    {"rlimits": [{"type": "RLIMIT_CPU", "soft": 2**64 - 1, "hard": 2**64 - 1}, {"type": "nofile"}, {"type": "CORE"}]},
    {"CDI_devices": [{"name": "vendor.com/net=eth1"}, {"name": "nvidia.com/gpu=0:1"}]},
    linux(devices=[{"path": "-/dev/x"}, {"path": "/dev/x", "type": "b"}, {"path": "/run/p", "type": "p"}]),
    linux(cgroups_path="system.slice:cri:c"),
    linux(oom_score_adj={"value": -1000}, io_priority={"class": "IOPRIO_CLASS_IDLE"}),
    syscall(args=[{"index": 5, "op": "SCMP_CMP_MASKED_EQ"}]),
    linux(namespaces=[{"type": "-network"}, {"type": "time", "path": "/proc/1/ns/time"}]),
    linux(sysctl={"net.ipv4.conf.eth0/1.rp_filter": "1", "-kernel.shm_rmid_forced": "", "net/ipv4/ip_forward": "1"}),
    linux(net_devices={"eth1": {}, "-eth2": {}, "enp0s31f6": {"name": "eth2"}}),
    linux(scheduler={"policy": "SCHED_DEADLINE", "runtime": 1, "deadline": 2, "period": 2}),
    linux(rdt={"remove": True, "clos_id": {"value": "gold"}, "schemata": {"value": ["L3:0=f;1=f"]}}),
    linux(memory_policy={"mode": "MPOL_INTERLEAVE", "nodes": "0,2-3", "flags": ["MPOL_F_STATIC_NODES"]}),
    resources(memory={"limit": {"value": -1}, "swap": {"value": -1}}, cpu={"quota": {"value": -1}, "cpus": "0-6:2/3"}),
    resources(unified={"memory.high": "max", "hugetlb.2MB.max": "1"}, pids={"limit": -1}, blockio_class={"value": ""}),
    resources(devices=[{"allow": False, "access": "rwm"}, {"type": "a", "major": {"value": -1}}]),
]


@pytest.mark.parametrize("adjust", FINE, ids=str)
def test_a_valid_adjustment_is_accepted(adjust):
    check_adjustment(ParseDict(adjust, pb.ContainerAdjustment()))
