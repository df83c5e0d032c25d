"""The messages as they travel, in text: what a runtime is asked for a plain pod, and for one that wants everything."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as some

from podwire.kubelet.config.container import container_config, container_hash
from podwire.kubelet.config.environment import ConfigError
from podwire.kubelet.config.sandbox import sandbox_config
from podwire.objects.containers import Container
from podwire.protocols.cri import cri_pb2 as pb

GOLDEN = Path(__file__).parent / "golden"
DNS = pb.DNSConfig(servers=["10.96.0.10"], searches=["shop.svc.cluster.local"], options=["ndots:5"])
IMAGE = pb.Image(id="sha256:1111", uid=pb.Int64Value(value=0))


def sandbox_of(pod, **more):
    asked = {"attempt": 0, "hostname": "web", "dns": DNS, "log_directory": "/logs/shop_web_uid-1", **more}
    return sandbox_config(pod, **asked)


def container_of(pod, node, **more):
    asked = {"attempt": 0, "image": IMAGE, "env": {}, "mounts": [], "node": node, "log_path": "main/0.log", **more}
    return container_config(pod, pod.spec.containers[0], **asked)


def check(message: Message, name: str) -> None:
    """The text, with maps in the order of their keys."""
    assert text_format.MessageToString(message) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_the_sandbox_of_a_plain_pod(pod):
    check(sandbox_of(pod()), "plain_sandbox")


def test_the_container_of_a_plain_pod(pod, node):
    check(container_of(pod(), node), "plain_container")


def test_the_sandbox_of_a_pod_that_wants_everything(rich):
    seen = "2026-11-15T06:48:43.000000000Z"
    check(sandbox_of(rich, attempt=2, cgroup_parent="/kubepods/pod-uid-1", seen=seen), "rich_sandbox")


def test_the_container_of_a_pod_that_wants_everything(rich, node):
    config = container_of(
        rich,
        node,
        attempt=3,
        env={"GREETING": "hello", "WHERE": "the door", "RAW": "\udcff"},
        mounts=[pb.Mount(container_path="/data", host_path="/var/data", readonly=True)],
        log_path="main/3.log",
        devices=[pb.Device(container_path="/dev/x", host_path="/dev/x", permissions="rw")],
        cdi_devices=["vendor.test/nic=0"],
        annotations={"plugin": "says", "io.kubernetes.container.restartCount": "9"},
    )
    check(config, "rich_container")


def test_a_pod_on_the_nodes_network_has_the_nodes_name(pod):
    config = sandbox_of(pod({"hostNetwork": True}))
    assert config.hostname == ""
    assert config.linux.security_context.namespace_options.network == pb.NODE


def test_the_source_annotation_is_kept(pod):
    source = "kubernetes.io/config.source"
    assert sandbox_of(pod(annotations={source: "file"})).annotations[source] == "file"


def test_the_copy_of_the_pod_that_kubectl_keeps_is_not_sent_to_the_runtime(pod):
    """It has the values of environment variables, which a runtime would write into its records."""
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"}
    annotations = sandbox_of(pod(annotations=applied)).annotations
    assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations
    assert annotations["kept"] == "yes"


def test_labels_of_a_pod_cannot_override_the_owner_labels(pod):
    config = sandbox_of(pod(labels={"io.kubernetes.pod.uid": "another"}))
    assert config.labels["io.kubernetes.pod.uid"] == "uid-1"


@pytest.mark.parametrize("place", ["containers", "initContainers", "ephemeralContainers"])
def test_one_privileged_container_makes_the_sandbox_privileged(pod, place):
    lifted = {"name": "lifted", "image": "a:1", "securityContext": {"privileged": True}}
    assert sandbox_of(pod({place: [lifted]})).linux.security_context.privileged
    assert not sandbox_of(pod({place: [{**lifted, "securityContext": {}}]})).linux.security_context.privileged


def test_users_of_its_own_are_refused_in_upstreams_words(pod):
    with pytest.raises(
        ConfigError, match=r"can't set `spec\.hostUsers: false`, runtime does not support user namespaces"
    ):
        sandbox_of(pod({"hostUsers": False}))


def test_an_ephemeral_container_joins_the_processes_of_its_target(pod, node):
    options = container_of(pod(), node, target="c0ffee").linux.security_context.namespace_options
    assert (options.pid, options.target_id) == (pb.TARGET, "c0ffee")
    shared = container_of(pod({"shareProcessNamespace": True}), node, target="c0ffee")
    assert shared.linux.security_context.namespace_options.pid == pb.POD


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("", "RUNTIME_DEFAULT"),
        ("SIGUSR1", "SIGUSR1"),
        ("SIGRTMIN+1", "SIGRTMINPLUS1"),
        ("SIGRTMAX-2", "SIGRTMAXMINUS2"),
    ],
)
def test_a_stop_signal_by_its_name_in_cri(pod, node, given, sent):
    config = container_of(pod(container={"lifecycle": {"stopSignal": given}}), node)
    assert pb.Signal.Name(config.stop_signal) == sent


def test_a_stop_signal_that_there_is_not_is_refused(pod, node):
    with pytest.raises(ConfigError, match="unsupported stop signal: SIGNONE"):
        container_of(pod(container={"lifecycle": {"stopSignal": "SIGNONE"}}), node)


def test_a_command_with_invalid_utf8_is_rejected(pod, node):
    with pytest.raises(ConfigError, match=r"args\[1\]: a variable in it is not valid UTF-8"):
        container_of(pod(container={"args": ["a", "$(RAW)"]}), node, env={"RAW": "\udcff"})
    assert container_of(pod(container={"args": ["über $(RAW)"]}), node, env={"RAW": "größer"}).args == ["über größer"]


def test_the_annotations_of_a_container_describe_its_termination(pod, node):
    config = container_of(pod(deletionTimestamp="2026-11-15T06:48:43Z", deletionGracePeriodSeconds=7), node)
    assert config.annotations["io.kubernetes.pod.deletionGracePeriod"] == "7"


names = some.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
images = some.text(some.characters(exclude_categories=["Cs"]), max_size=20)


@given(names, images, names, images)
def test_containers_have_the_same_hash_exactly_when_name_and_image_are_the_same(name, image, other_name, other_image):
    one, other = Container(name=name, image=image), Container(name=other_name, image=other_image)
    assert (container_hash(one) == container_hash(other)) == ((name, image) == (other_name, other_image))


@pytest.mark.parametrize(
    "change",
    [{"env": [{"name": "A", "value": "1"}]}, {"args": ["x"]}, {"resources": {"limits": {"cpu": "1"}}}, {"tty": True}],
    ids=lambda each: next(iter(each)),
)
def test_only_name_and_image_change_the_hash(pod, change):
    assert container_hash(pod(container=change).spec.containers[0]) == container_hash(pod().spec.containers[0])


def test_the_hash_is_the_same_in_every_process_and_version():
    assert container_hash(Container(name="main", image="registry.test/app:1")) == "26b981f9fec262b5"
