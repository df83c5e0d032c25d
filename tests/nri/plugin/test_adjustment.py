"""Every call of Adjustment and Updates, and what it makes of the message."""

import asyncio

import pytest
from google.protobuf import text_format

from podwire.nri import Adjustment, Plugin, Updates, pb, run
from podwire.nri.adaptation import Adaptation, Settings
from podwire.nri.resources import Resources
from podwire.protocols.nri.nri_pb2 import LinuxContainerAdjustment

EVERY_RESOURCE: Resources = {
    "memory_limit": 1,
    "memory_reservation": 2,
    "memory_swap": 3,
    "memory_kernel": 4,
    "memory_kernel_tcp": 5,
    "memory_swappiness": 6,
    "memory_disable_oom_killer": True,
    "memory_use_hierarchy": False,
    "cpu_shares": 7,
    "cpu_quota": -1,
    "cpu_period": 9,
    "cpu_realtime_runtime": 10,
    "cpu_realtime_period": 11,
    "cpu_cpus": "0-3",
    "cpu_mems": "0",
    "hugepage_limits": {"2MB": 12},
    "unified": {"memory.high": "13"},
    "pids_limit": 0,
    "blockio_class": "",
    "rdt_class": "gold",
}
RESOURCES = """
    memory {
      limit { value: 1 } reservation { value: 2 } swap { value: 3 } kernel { value: 4 } kernel_tcp { value: 5 }
      swappiness { value: 6 } disable_oom_killer { value: true } use_hierarchy { }
    }
    cpu {
      shares { value: 7 } quota { value: -1 } period { value: 9 }
      realtime_runtime { value: 10 } realtime_period { value: 11 } cpus: "0-3" mems: "0"
    }
    hugepage_limits { page_size: "2MB" limit: 12 }
    unified { key: "memory.high" value: "13" }
    pids { }
    blockio_class { }
    rdt_class { value: "gold" }
"""
SECCOMP = pb.LinuxSeccomp(default_action="SCMP_ACT_ERRNO")
SCHEDULER = pb.LinuxScheduler(policy="SCHED_FIFO", priority=5)

CALLS = {
    "add_annotation": (lambda a: a.add_annotation("k", "v"), 'annotations { key: "k" value: "v" }'),
    "remove_annotation": (lambda a: a.remove_annotation("k"), 'annotations { key: "-k" value: "" }'),
    "add_mount": (
        lambda a: a.add_mount("/d", "/s", options=("rbind", "ro")),
        'mounts { destination: "/d" type: "bind" source: "/s" options: "rbind" options: "ro" }',
    ),
    "remove_mount": (lambda a: a.remove_mount("/d"), 'mounts { destination: "-/d" }'),
    "add_env": (lambda a: a.add_env("K", "v"), 'env { key: "K" value: "v" }'),
    "remove_env": (lambda a: a.remove_env("K"), 'env { key: "-K" }'),
    "set_args": (lambda a: a.set_args(["a"]).set_args(["b", "c"]), 'args: "b" args: "c"'),
    "add_hook": (
        lambda a: a.add_hook("create_runtime", "/h", args=["h", "1"], env=["A=b"], timeout=5),
        'hooks { create_runtime { path: "/h" args: "h" args: "1" env: "A=b" timeout { value: 5 } } }',
    ),
    "add_rlimit": (
        lambda a: a.add_rlimit("RLIMIT_NOFILE", hard=9).add_rlimit("RLIMIT_CORE", hard=9, soft=0),
        'rlimits { type: "RLIMIT_NOFILE" hard: 9 soft: 9 } rlimits { type: "RLIMIT_CORE" hard: 9 }',
    ),
    "add_cdi_device": (
        lambda a: a.add_cdi_device("v.com/net=a", "v.com/net=b"),
        'CDI_devices { name: "v.com/net=a" } CDI_devices { name: "v.com/net=b" }',
    ),
    "add_device": (
        lambda a: a.add_device("/dev/n", major=1, minor=3, file_mode=0o666, uid=0),
        'linux { devices { path: "/dev/n" type: "c" major: 1 minor: 3 file_mode { value: 438 } uid { } } }',
    ),
    "remove_device": (lambda a: a.remove_device("/dev/n"), 'linux { devices { path: "-/dev/n" } }'),
    "add_device_rule": (
        lambda a: a.add_device_rule(allow=True, kind="c", major=0, access="rw"),
        'linux { resources { devices { allow: true type: "c" major { } access: "rw" } } }',
    ),
    "add_net_device": (
        lambda a: a.add_net_device("ens1", "net1").add_net_device("ens2"),
        """linux {
          net_devices { key: "ens1" value { name: "net1" } } net_devices { key: "ens2" value { name: "ens2" } }
        }""",
    ),
    "remove_net_device": (lambda a: a.remove_net_device("ens1"), 'linux { net_devices { key: "-ens1" value { } } }'),
    "add_sysctl": (lambda a: a.add_sysctl("net.a", "1"), 'linux { sysctl { key: "net.a" value: "1" } }'),
    "remove_sysctl": (lambda a: a.remove_sysctl("net.a"), 'linux { sysctl { key: "-net.a" value: "" } }'),
    "add_namespace": (lambda a: a.add_namespace("ipc", "/p"), 'linux { namespaces { type: "ipc" path: "/p" } }'),
    "remove_namespace": (lambda a: a.remove_namespace("ipc"), 'linux { namespaces { type: "-ipc" } }'),
    "set_resources": (lambda a: a.set_resources(**EVERY_RESOURCE), f"linux {{ resources {{ {RESOURCES} }} }}"),
    "set_cgroups_path": (lambda a: a.set_cgroups_path("/c"), 'linux { cgroups_path: "/c" }'),
    "set_oom_score_adj": (lambda a: a.set_oom_score_adj(0), "linux { oom_score_adj { } }"),
    "set_io_priority": (
        lambda a: a.set_io_priority("IOPRIO_CLASS_BE", 4),
        "linux { io_priority { class: IOPRIO_CLASS_BE priority: 4 } }",
    ),
    "set_seccomp_policy": (
        lambda a: a.set_seccomp_policy(SECCOMP),
        'linux { seccomp_policy { default_action: "SCMP_ACT_ERRNO" } }',
    ),
    "set_scheduler": (
        lambda a: a.set_scheduler(SCHEDULER),
        "linux { scheduler { policy: SCHED_FIFO priority: 5 } }",
    ),
    "set_memory_policy": (
        lambda a: a.set_memory_policy("MPOL_BIND", "0-1", flags=["MPOL_F_RELATIVE_NODES"]),
        'linux { memory_policy { mode: MPOL_BIND nodes: "0-1" flags: MPOL_F_RELATIVE_NODES } }',
    ),
    "set_rdt": (
        lambda a: a.set_rdt(clos_id="", schemata=["L3:0=f"], enable_monitoring=False),
        'linux { rdt { clos_id { } schemata { value: "L3:0=f" } enable_monitoring { } } }',
    ),
    "remove_rdt": (lambda a: a.remove_rdt(), "linux { rdt { remove: true } }"),
}


@pytest.mark.parametrize(("call", "text"), CALLS.values(), ids=list(CALLS))
def test_each_call_writes_its_field_and_can_be_chained(call, text):
    adjustment = Adjustment()
    assert call(adjustment) is adjustment
    assert adjustment.message == text_format.Parse(text, pb.ContainerAdjustment())


def test_every_method_is_in_the_table():
    assert {var for var in vars(Adjustment) if not var.startswith("_")} == set(CALLS)


def test_there_is_a_call_for_every_field_that_plugins_may_set():
    everything = Adjustment()
    for call, _ in CALLS.values():
        call(everything)
    assert {field.name for field, _ in everything.message.ListFields()} == {
        field.name for field in pb.ContainerAdjustment.DESCRIPTOR.fields
    }
    assert {field.name for field, _ in everything.message.linux.ListFields()} == {
        field.name for field in LinuxContainerAdjustment.DESCRIPTOR.fields
    }


def test_arguments_that_another_plugin_set_are_replaced_by_a_mark_before_them():
    assert list(Adjustment().set_args(["a"], replace=True).message.args) == ["", "a"]


def test_removing_a_value_first_takes_it_over():
    message = Adjustment().remove_env("A").add_env("A", "1").message
    assert [item.key for item in message.env] == ["-A", "A"]


def test_there_is_a_keyword_for_every_resource():
    assert set(EVERY_RESOURCE) == set(Resources.__annotations__)
    resources = Adjustment().set_resources(**EVERY_RESOURCE).add_device_rule(allow=True).message.linux.resources
    assert {field.name for field, _ in resources.ListFields()} == {
        field.name for field in pb.LinuxResources.DESCRIPTOR.fields
    }
    for group in (resources.memory, resources.cpu):
        assert {field.name for field, _ in group.ListFields()} == {field.name for field in group.DESCRIPTOR.fields}


def test_a_resource_that_does_not_exist_is_named():
    with pytest.raises(TypeError, match="no such resource: cpu_speed"):
        Adjustment().set_resources(cpu_speed=1)


def test_updates_of_a_container_are_merged():
    updates = Updates().set("a", cpu_shares=1).set("b", memory_limit=2, ignore_failure=True).set("a", cpu_quota=3)
    text = """
      update { container_id: "a" linux { resources { cpu { shares { value: 1 } quota { value: 3 } } } } }
      update { container_id: "b" linux { resources { memory { limit { value: 2 } } } } ignore_failure: true }
    """
    assert pb.UpdateContainersRequest(update=updates) == text_format.Parse(text, pb.UpdateContainersRequest())
    assert len(updates) == 2


class Node:
    """Has nothing to update."""

    async def update_containers(self, updates):
        return []


@pytest.mark.parametrize(("call", "text"), CALLS.values(), ids=list(CALLS))
async def test_each_call_reaches_a_host_over_the_wire(tmp_path, call, text):
    class Adjusts(Plugin):
        name = "adjusts"

        async def create_container(self, pod, container):
            return call(Adjustment())

    host = Adaptation(Settings(socket=tmp_path / "nri.sock"), Node(), runtime_name="test", runtime_version="1.0")
    async with host.running():
        life = asyncio.create_task(run(Adjusts(), socket=tmp_path / "nri.sock", environ={}))
        async with asyncio.timeout(20):
            await host.wait_for("adjusts")
        created = await host.create_container(pb.PodSandbox(id="p"), pb.Container(id="c"))
        life.cancel()
        await asyncio.wait([life])
    assert created.adjust == text_format.Parse(text, pb.ContainerAdjustment())
