"""Names, signals, limits, devices, usage, events and statuses: small rules, each by itself."""

import asyncio
import errno
import signal
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.linux.cgroups.values import Limits
from podwire.linux.errors import Busy, OutOfResources
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from podwire.runtime.containers.container import Container, exit_reason, signal_number, stop_signal
from podwire.runtime.containers.devices import requested_devices
from podwire.runtime.containers.host import HostPrivileges
from podwire.runtime.containers.shim import Exited
from podwire.runtime.cri import statuses
from podwire.runtime.cri.errors import rpc_error, translate_errors
from podwire.runtime.cri.events import Events
from podwire.runtime.cri.resources import limits_of
from podwire.runtime.cri.validation import check_container, check_sandbox, new_id, sandbox_name
from podwire.runtime.images.errors import BadReference, ImageInUse, NoSuchImage, StoreFull
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.records import ContainerRecord, SandboxRecord
from podwire.runtime.sandboxes.lifecycle import resolv_conf
from podwire.runtime.sandboxes.sandbox import Sandbox


def test_ids_are_new_and_of_64_hexadecimal_digits():
    assert len({new_id() for _ in range(100)}) == 100
    assert len(new_id()) == 64
    assert int(new_id(), 16)


def test_a_sandboxs_name_has_its_attempt():
    metadata = pb.PodSandboxMetadata(name="n", namespace="ns", uid="u", attempt=2)
    assert sandbox_name(metadata) == "n_ns_u_2"


@given(st.text(max_size=30))
def test_names_never_become_paths(name):
    config = pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="n", namespace="ns", uid="u"))
    try:
        config.metadata.name = name
        check_sandbox(config)
    except (InvalidArgument, UnicodeEncodeError):
        return
    assert not {"/", "\0", "\n", ";"} & set(name)
    assert name not in ("", ".", "..")


@given(st.text(max_size=30))
def test_logs_stay_below_their_directory(path):
    config = pb.ContainerConfig(metadata=pb.ContainerMetadata(name="c"), image=pb.ImageSpec(image="i"))
    try:
        config.log_path = path
        check_container(config)
    except (InvalidArgument, UnicodeEncodeError):
        return
    assert not path.startswith("/")
    assert ".." not in path.split("/")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("SIGTERM", 15), ("term", 15), ("9", 9), ("SIGRTMIN+3", signal.SIGRTMIN + 3),
        ("RTMAX-1", signal.SIGRTMAX - 1), ("SIGRTMIN", signal.SIGRTMIN), ("", 0), ("NOPE", 0), ("0", 0), ("99", 0),
        ("TERM+1", 0), ("_IGN", 0), ("9" * 5000, 0), ("RTMIN+" + "9" * 5000, 0), ("RTMIN+99", 0), ("\u00b9", 0),
    ],
)  # fmt: skip
def test_signals_by_name(name, wanted):
    assert signal_number(name) == wanted


def test_a_stop_signal_is_the_containers_then_the_images_then_term():
    config = pb.ContainerConfig(stop_signal=pb.Signal.Value("SIGUSR1"))
    assert stop_signal(config, "SIGINT") == signal.SIGUSR1
    assert stop_signal(pb.ContainerConfig(), "SIGINT") == signal.SIGINT
    assert stop_signal(pb.ContainerConfig(), "nonsense") == signal.SIGTERM
    assert stop_signal(pb.ContainerConfig()) == signal.SIGTERM


def test_every_signal_of_cri_is_one_of_the_kernels():
    names = {value.name for value in pb.Signal.DESCRIPTOR.values} - {"RUNTIME_DEFAULT", "SIGTERM"}
    sent = {name: stop_signal(pb.ContainerConfig(stop_signal=pb.Signal.Value(name))) for name in names}
    assert [each for each, value in sent.items() if value == signal.SIGTERM] == []
    assert sent["SIGRTMINPLUS3"] == signal.SIGRTMIN + 3
    assert sent["SIGRTMAXMINUS14"] == signal.SIGRTMAX - 14


def test_zero_limits_are_none():
    assert limits_of(pb.LinuxContainerResources()) == Limits()
    result = pb.LinuxContainerResources(cpu_quota=-1, cpu_shares=2, memory_limit_in_bytes=3, cpuset_cpus="0")
    assert limits_of(result) == Limits(cpu_quota=-1, cpu_shares=2, memory=3, cpus="0")
    with pytest.raises(InvalidArgument, match="unified"):
        limits_of(pb.LinuxContainerResources(unified={"a": "b"}))
    for text in ("0", "-1", "", "x", "4194305", "\u0661"):
        with pytest.raises(InvalidArgument, match=r"pids\.max"):
            limits_of(pb.LinuxContainerResources(unified={"pids.max": text}))
    assert limits_of(pb.LinuxContainerResources(unified={"pids.max": "10"})).pids == 10
    assert limits_of(pb.LinuxContainerResources(unified={"pids.max": "max"})).pids == -1


def test_devices_are_looked_up_on_the_host():
    requested = [pb.Device(host_path="/dev/null", container_path="/dev/x", permissions="r")]
    (node,), rules = requested_devices(requested, privileged=False)
    assert (node["path"], node["type"], node["major"], node["minor"]) == ("/dev/x", "c", 1, 3)
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert rules[-1] == {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "r"}
    nodes, rules = requested_devices([], privileged=True)
    assert "/dev/null" in {node["path"] for node in nodes}
    assert rules == [{"allow": True, "access": "rwm"}]


@pytest.mark.parametrize(
    ("device", "kind", "field"),
    [
        (pb.Device(host_path="/etc/passwd"), NotFound, r"devices\[0\].host_path"),
        (pb.Device(host_path="dev/null"), InvalidArgument, "container_path"),
        (pb.Device(host_path="/dev/null", permissions="rwx"), InvalidArgument, "permissions"),
    ],
)
def test_devices_that_cannot_be(device, kind, field):
    with pytest.raises(kind, match=field):
        requested_devices([device], privileged=False)


def test_resolv_conf_has_the_dns_config_of_the_kubelet():
    config = pb.PodSandboxConfig()
    config.dns_config.SetInParent()
    assert resolv_conf(config) == ""
    config.dns_config.servers.extend(["1.1.1.1", "::1"])
    assert resolv_conf(config) == "nameserver 1.1.1.1\nnameserver ::1\n"
    config.dns_config.searches.append("a b")
    with pytest.raises(InvalidArgument, match="dns_config"):
        resolv_conf(config)


def test_a_score_that_may_not_be_lowered_is_not(tmp_path):
    (tmp_path / "status").write_text("Name:\tx\nCapBnd:\t0000000000000001\n")
    (tmp_path / "score").write_text("100\n")
    host = HostPrivileges(tmp_path / "status", tmp_path / "score")
    assert host.capabilities == ["CAP_CHOWN"]
    assert [host.oom_score_adj(item) for item in (-997, 100, 1000)] == [100, 100, 1000]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutOfResources(errno.ENOSPC, "write x"), ResourceExhausted),
        (OSError(errno.ENOSPC, "no space"), ResourceExhausted),
        (Busy(errno.EBUSY, "remove y"), Internal),
        (PermissionError(errno.EACCES, "no", "/x"), Internal),
        (StoreFull("full"), ResourceExhausted),
        (ImageInUse("i", "c"), FailedPrecondition),
        (NoSuchImage("i"), NotFound),
        (BadReference("i", "no"), InvalidArgument),
    ],
)
async def test_errors_have_the_grpc_code_of_their_kind(error, kind):
    assert type(rpc_error(error)) is kind

    async def failing(_request):
        raise error

    with pytest.raises(kind):
        await translate_errors(failing)(None)


@pytest.mark.parametrize(
    ("exited", "oom", "reason"),
    [
        (Exited(0, 1), False, "Completed"),
        (Exited(1, 1), False, "Error"),
        (Exited(137, 1), True, "OOMKilled"),
        (Exited(137, 1), False, "Error"),
        (Exited(1, 1), True, "Error"),
        (Exited(255, 0, known=False), True, "Unknown"),
    ],
)
def test_reasons(exited, oom, reason):
    assert exit_reason(exited, oom=oom) == reason


def sandbox(id_="aaaa", state="ready", labels=None, addresses=("10.0.0.1", "fd00::1")):
    config = pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="n"), labels=labels or {})
    record = SandboxRecord(
        id=id_, state=state, config=b"", created_at=1, boot_id="b", network="/ns", addresses=addresses
    )
    return Sandbox(record, config)


def container(id_="cccc", sandbox_id="aaaa", state="running", labels=None, **fields):
    config = pb.ContainerConfig(
        image=pb.ImageSpec(image="sha256:1", user_specified_image="busybox"), labels=labels or {}
    )
    record = ContainerRecord(
        id=id_,
        sandbox_id=sandbox_id,
        state=state,
        config=b"",
        image_id="sha256:1",
        image_ref="r",
        created_at=1,
        **fields,
    )
    return Container(record, config)


def test_addresses_are_reported_only_while_the_sandbox_is_ready():
    status = statuses.sandbox_status(sandbox())
    assert (status.network.ip, [address.ip for address in status.network.additional_ips]) == ("10.0.0.1", ["fd00::1"])
    gone = statuses.sandbox_status(sandbox(state="stopped"))
    assert (gone.network.ip, gone.state) == ("", pb.SANDBOX_NOTREADY)


def test_a_containers_status_names_the_image_as_the_pod_does():
    status = statuses.container_status(container(state="exited", exit_code=3, finished_at=9, reason="Error"))
    assert (status.image.image, status.image_ref, status.image_id) == ("busybox", "r", "sha256:1")
    assert (status.state, status.exit_code, status.finished_at, status.reason) == (pb.CONTAINER_EXITED, 3, 9, "Error")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["cccc", "dddd"]),
        ({"id": "cc"}, ["cccc"]),
        ({"pod_sandbox_id": "bbbb"}, ["dddd"]),
        ({"state": pb.ContainerStateValue(state=pb.CONTAINER_EXITED)}, ["dddd"]),
        ({"state": pb.ContainerStateValue(state=pb.CONTAINER_CREATED)}, []),
        ({"label_selector": {"a": "1"}}, ["cccc"]),
        ({"label_selector": {"a": "1", "b": "2"}}, []),
    ],
)
def test_containers_are_picked(wanted, found):
    all_ = [container(labels={"a": "1"}), container("dddd", "bbbb", "exited", {"a": "2"})]
    picked = statuses.filter_containers(all_, pb.ContainerFilter(**wanted))
    assert [item.id for item in picked] == found


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["aaaa", "bbbb"]),
        ({"id": "b"}, ["bbbb"]),
        ({"state": pb.PodSandboxStateValue(state=pb.SANDBOX_READY)}, ["aaaa"]),
        ({"label_selector": {"a": "1"}}, ["bbbb"]),
    ],
)
def test_sandboxes_are_picked(wanted, found):
    all_ = [sandbox(), sandbox("bbbb", "stopped", {"a": "1"})]
    assert [sandbox.id for sandbox in statuses.filter_sandboxes(all_, pb.PodSandboxFilter(**wanted))] == found


@pytest.fixture
def events(clock):
    result = Events(clock)
    result.describe = lambda each: (pb.PodSandboxStatus(id=each.id), [])
    return result


async def test_events_reach_every_listener_in_order(events):
    one, two = events.listen(), events.listen()
    waiting = [asyncio.create_task(anext(item)) for item in (one, two)]
    await asyncio.sleep(0)
    pod = SimpleNamespace(id="p")
    events.sandbox(pod, "CREATED")
    events.container("c", pod, "STARTED")
    assert [(await item).container_id for item in waiting] == ["p", "p"]
    later = await anext(one)
    assert (later.container_id, later.container_event_type) == ("c", pb.CONTAINER_STARTED_EVENT)
    assert later.pod_sandbox_status.id == "p"
    for entry in (one, two):
        await entry.aclose()
    assert not events._listeners


async def test_a_slow_listener_is_ended_and_delays_no_event(clock):
    events = Events(clock, RuntimeLimits(queued_events=3))
    events.describe = lambda sandbox: (pb.PodSandboxStatus(id=sandbox.id), [])
    slow = events.listen()
    first = asyncio.create_task(anext(slow))
    await asyncio.sleep(0)
    pod = SimpleNamespace(id="p")
    for _ in range(10):
        events.sandbox(pod, "CREATED")
    await first
    assert len([item async for item in slow]) == 2
    assert not events._listeners
