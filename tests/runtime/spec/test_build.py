import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.spec import Container, Pod, build
from podwire.runtime.spec.build import DEFAULT_PATH, MASKED, arguments, environment, namespaces
from podwire.runtime.spec.capabilities import ALL

POD = Pod(id="p", config=pb.PodSandboxConfig(hostname="web"), network="/ns/net", ipc="/ns/ipc", shm="/shm")


def container(config=None, **facts):
    config = config or pb.ContainerConfig(command=["true"])
    if not config.linux.security_context.namespace_options.pid:
        config.linux.security_context.namespace_options.pid = pb.CONTAINER
    return Container(id="c", config=config, rootfs="/root", available=ALL, **facts)


@pytest.mark.parametrize(
    ("command", "args", "entrypoint", "cmd", "wanted"),
    [
        pytest.param([], [], ["e"], ["c"], ["e", "c"], id="the image's"),
        pytest.param([], ["a"], ["e"], ["c"], ["e", "a"], id="arguments replace the image's command"),
        pytest.param(["x"], [], ["e"], ["c"], ["x"], id="a command replaces both"),
        pytest.param(["x"], ["a"], ["e"], ["c"], ["x", "a"], id="all of the pod's"),
        pytest.param([], [], [], ["c"], ["c"], id="an image without entrypoint"),
    ],
)
def test_the_command_line(command, args, entrypoint, cmd, wanted):
    config = pb.ContainerConfig(command=command, args=args)
    assert arguments(container(config, entrypoint=entrypoint, command=cmd)) == wanted


def test_a_container_must_have_something_to_run():
    with pytest.raises(InvalidArgument, match="command"):
        arguments(container(pb.ContainerConfig()))


def test_the_later_variable_wins():
    config = pb.ContainerConfig(envs=[pb.KeyValue(key="A", value=b"pod"), pb.KeyValue(key="B", value=b"")], tty=True)
    found = environment(container(config, environment=["A=image", "HOSTNAME=image", "C=a=b"]), "web")
    assert found == [DEFAULT_PATH, "HOSTNAME=image", "A=pod", "C=a=b", "B=", "TERM=xterm"]
    assert "HOSTNAME=web" in environment(container(), "web")
    assert not [item for item in environment(container()) if item.startswith("HOSTNAME")]


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [("", b"", r"envs\[0\].key"), ("A=", b"", "key"), ("A", b"\0", "value: contains"), ("A", b"\xff", "UTF-8")],
)
def test_variables_that_cannot_be(key, value, field):
    pair = pb.KeyValue(key=key, value=value)
    with pytest.raises(InvalidArgument, match=field):
        environment(container(pb.ContainerConfig(envs=[pair])))


def kinds(options, pod=POD, **facts):
    return {namespace["type"]: namespace.get("path") for namespace in namespaces(pod, container(**facts), options)}


def test_namespaces_are_the_pods_the_nodes_or_the_containers_own():
    option = pb.NamespaceOption
    own = kinds(option(pid=pb.CONTAINER))
    assert own == {"mount": None, "uts": None, "network": "/ns/net", "ipc": "/ns/ipc", "pid": None}
    assert "pid" not in kinds(option(pid=pb.NODE))
    assert kinds(option(pid=pb.TARGET), target_pid=7)["pid"] == "/proc/7/ns/pid"
    shared = Pod(id="p", config=pb.PodSandboxConfig(), pids="/ns/pid")
    assert kinds(option(), shared)["pid"] == "/ns/pid"  # POD is the default
    assert kinds(option(pid=pb.CONTAINER, ipc=pb.CONTAINER))["ipc"] is None
    host = kinds(option(pid=pb.CONTAINER), Pod(id="p", config=pb.PodSandboxConfig()))
    assert not {"network", "ipc"} & set(host)


def test_a_container_has_the_user_namespace_of_its_pod():
    with pytest.raises(InvalidArgument, match="userns"):
        kinds(pb.NamespaceOption(pid=pb.CONTAINER, userns_options=pb.UserNamespace(mode=pb.POD)))


def test_the_whole():
    spec = build(POD, container(oom_score_adj=500))
    assert spec["process"]["args"] == ["true"]
    assert spec["process"]["cwd"] == "/"
    assert spec["process"]["oomScoreAdj"] == 500
    assert spec["hostname"] == "web"
    assert spec["root"] == {"path": "/root", "readonly": False}
    assert spec["linux"]["maskedPaths"] == list(MASKED)
    assert "seccomp" not in spec["linux"]
    assert "rootfsPropagation" not in spec["linux"]


def test_a_privileged_container_has_nothing_hidden():
    config = pb.ContainerConfig(command=["true"])
    config.linux.security_context.privileged = True
    config.linux.security_context.seccomp.profile_type = pb.SecurityProfile.RuntimeDefault
    spec = build(POD, container(config))
    assert not {"maskedPaths", "readonlyPaths", "seccomp"} & set(spec["linux"])
    assert next(mount for mount in spec["mounts"] if mount["destination"] == "/sys")["options"][-1] == "rw"


def test_a_mount_of_the_containers_own_replaces_the_usual_one():
    config = pb.ContainerConfig(command=["true"], mounts=[pb.Mount(host_path="/h", container_path="/dev/shm/")])
    spec = build(POD, container(config))
    assert [mount["source"] for mount in spec["mounts"] if mount["destination"] == "/dev/shm"] == ["/h"]
