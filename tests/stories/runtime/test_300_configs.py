"""A pod as the API has it, made into messages by the kubelet, run by the runtime, and looked at from inside."""

import base64
import contextlib
from pathlib import Path

import pytest

from podwire.kubelet.config.container import container_config
from podwire.kubelet.config.environment import ConfigError, environment
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.config.sandbox import sandbox_config
from podwire.kubelet.images.puller import ImageError, ImagePuller
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.transports import grpc_client
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async

IMAGE = "podwire.local/busybox:latest"
NODE = NodeFacts(
    name="node-1",
    ips=("192.0.2.10",),
    allocatable={"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"},
    memory_capacity=8 << 30,
)
CONFIG_MAPS = {"settings": {"data": {"COLOR": "red", "with.dots": "fine"}}}
SECRETS = {"keys": {"data": {"TOKEN": base64.b64encode(b"s3cret $(COLOR)").decode()}}}
SERVICES = [
    {
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 443}]},
    }
]

FOREVER = "trap 'exit 0' TERM; trap 'exit 7' USR1; echo $$0 $$1 ready > /tmp/said; while :; do sleep 0.05; done"

RICH = {
    "name": "main",
    "image": IMAGE,
    "command": ["sh", "-c"],
    "args": [FOREVER, "$(GREETING)", "$(NOBODY)"],
    "workingDir": "/tmp",
    "envFrom": [{"configMapRef": {"name": "settings"}}, {"prefix": "KEY_", "secretRef": {"name": "keys"}}],
    "env": [
        {"name": "GREETING", "value": "hello-$(COLOR)"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ],
    "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
    "lifecycle": {"stopSignal": "SIGUSR1"},
    "securityContext": {
        "runAsUser": 1234,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
    },
}
SHARED = {
    "runAsUser": 1000,
    "runAsGroup": 2000,
    "runAsNonRoot": True,
    "fsGroup": 3000,
    "supplementalGroups": [4000],
    "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}],
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod_of(container, name="web", **spec):
    about = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": {"app": "web"}}
    return pods.read({"metadata": about, "spec": {"containers": [container], "nodeName": "node-1", **spec}})


@pytest.fixture
async def images(shared):
    """The puller at the runtime, and which events report it."""
    events = []
    async with grpc_client.connect(shared.socket) as client:
        yield ImagePuller(client, SystemClock(), lambda _pod, _container, *words: events.append(words)), events


async def sandbox_of(cri, shared, pod):
    dns = pb.DNSConfig(servers=["10.96.0.10"], searches=["shop.svc"], options=["ndots:5"])
    logs = str(shared.prefix / "logs" / pod.name)
    return await cri.run(sandbox_config(pod, attempt=0, hostname=pod.name, dns=dns, log_directory=logs))


async def started(cri, shared, puller, pod):
    """The pod's sandbox and its container, as a kubelet starts them."""
    [container] = pod.spec.containers
    image = await puller.ensure(pod, container)
    sandbox = await sandbox_of(cri, shared, pod)
    env, warnings = environment(
        pod, container, node=NODE, pod_ips=(sandbox.ip,), config_maps=CONFIG_MAPS, secrets=SECRETS, services=SERVICES
    )
    assert warnings == ()
    scratch = shared.prefix / f"scratch-{pod.name}"
    scratch.mkdir()
    scratch.chmod(0o777)
    mounts = [pb.Mount(container_path="/tmp", host_path=str(scratch))]
    config = container_config(
        pod, container, attempt=0, image=image, env=env, mounts=mounts, node=NODE, log_path="main/0.log"
    )
    return sandbox, await cri.start(sandbox, config=config)


async def ready(cri, id_):
    """The container's first output, once its traps are set."""

    async def said():
        words = await cri.said(id_, "cat /tmp/said 2>/dev/null; true")
        return words if "ready" in words else None

    return await eventually_async(said, within=20)


def memory_limit(runtime, id_):
    group = (runtime.state / "runtime/containers" / id_ / "cgroup").read_text()
    for tree in KernelCgroups().trees:
        for name in ("memory.limit_in_bytes", "memory.max"):
            with contextlib.suppress(OSError):
                return int(Path(tree.mount, group, name).read_text())
    return None


async def test_a_container_matches_its_pod_spec(cri, shared, images):
    sandbox, id_ = await started(cri, shared, images[0], pod_of(RICH, securityContext=SHARED))

    variables = dict(line.split("=", 1) for line in (await cri.said(id_, "env")).splitlines())
    expected = {
        "COLOR": "red",
        "KEY_TOKEN": "s3cret $(COLOR)",
        "GREETING": "hello-red",
        "POD_IP": sandbox.ip,
        "POD": "web",
        "NODE": "node-1",
        "MEMORY": "64",
        "CPUS": "2",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
        "HOSTNAME": "web",
    }
    assert {name: variables.get(name) for name in expected} == expected
    assert "with.dots=fine" in (await cri.said(id_, "tr '\\0' '\\n' < /proc/1/environ")).splitlines()

    assert await cri.said(id_, "id -u; id -g; id -G; pwd") == "1234\n2000\n2000 3000 4000\n/tmp\n"
    assert await ready(cri, id_) == "hello-red $(NOBODY) ready\n"
    facts = await cri.said(id_, "grep -E 'CapBnd|NoNewPrivs|Seccomp:' /proc/1/status; cat /proc/1/oom_score_adj")
    assert facts.split() == ["CapBnd:", f"{1 << 10:016x}", "NoNewPrivs:", "1", "Seccomp:", "2", "997"]
    assert (await cri.exec(id_, "echo no > /etc/new")).exit_code != 0
    assert await cri.said(id_, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start") == "80\n"
    assert await cri.said(id_, "wc -c < /proc/timer_list") == "0\n"
    assert memory_limit(shared, id_) == 64 << 20
    assert (await cri.status(id_)).resources.linux.cpu_shares == 102


async def test_a_stopped_container_gets_the_signal_that_it_asked_for(cri, shared, images):
    _, id_ = await started(cri, shared, images[0], pod_of(RICH, "signalled"))
    await ready(cri, id_)
    await cri("StopContainer", container_id=id_, timeout=20)
    assert (await cri.ended(id_)).exit_code == 7


async def test_a_kubelet_finds_its_sandboxes_and_containers_by_their_labels(cri, shared, images):
    plain = {"name": "main", "image": IMAGE, "command": ["sh", "-c", FOREVER]}
    sandbox, id_ = await started(cri, shared, images[0], pod_of(plain, "plain"))
    mine = {"io.kubernetes.pod.uid": "uid-plain"}
    [found] = (await cri("ListPodSandbox", filter=pb.PodSandboxFilter(label_selector=mine))).items
    assert (found.id, found.labels["app"], found.metadata.name) == (sandbox.id, "web", "plain")
    [inside] = (await cri("ListContainers", filter=pb.ContainerFilter(label_selector=mine))).containers
    assert (inside.id, inside.labels["io.kubernetes.container.name"]) == (id_, "main")
    assert inside.annotations["io.kubernetes.container.restartCount"] == "0"
    assert await cri.said(id_, "id -u; cat /proc/1/oom_score_adj") == "0\n1000\n"


async def test_an_image_that_runs_as_root_is_not_run_where_that_is_forbidden(cri, shared, images):
    with pytest.raises(ConfigError, match="container has runAsNonRoot and image will run as root"):
        await started(cri, shared, images[0], pod_of(RICH | {"securityContext": {"runAsNonRoot": True}}, "rooted"))


@pytest.mark.parametrize(
    ("policy", "reasons"), [("IfNotPresent", ["Pulled"]), ("Always", ["Pulling", "Pulled"]), ("Never", ["Pulled"])]
)
async def test_an_imported_image_serves_every_policy(images, policy, reasons):
    puller, events = images
    pod = pod_of({"name": "main", "image": IMAGE, "imagePullPolicy": policy})
    image = await puller.ensure(pod, pod.spec.containers[0])
    assert IMAGE in image.repo_tags
    assert [reason for _, reason, _ in events] == reasons


async def test_a_missing_image_is_refused_with_the_runtimes_error(images):
    puller, events = images
    pod = pod_of({"name": "main", "image": "nowhere.test/none:1", "imagePullPolicy": "IfNotPresent"})
    with pytest.raises(ImageError) as raised:
        await puller.ensure(pod, pod.spec.containers[0])
    assert raised.value.reason == "ErrImagePull"
    assert "failed to pull image: nowhere.test/none:1: nowhere.test: cannot connect" in str(raised.value)
    assert events[1] == ("Warning", "Failed", f'Failed to pull image "nowhere.test/none:1": {raised.value}')
