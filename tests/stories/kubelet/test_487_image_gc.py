"""A real node removes unused images: when their disk is nearly full, and before it evicts a pod."""

import json

import pytest

from tests.stories.kubelet.registry import HOST, Registry

pytestmark = pytest.mark.xdist_group("image-gc")
LOGIN = {"username": "ann", "password": "secret"}
WORDS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def node(running, template):
    """The disk of its images has 96 MiB; its kubelet looks every second, and images may go at once."""

    def prepare(made):
        images = made.runtime.state / "images"
        kept = made.prefix / "images-before"
        images.rename(kept)
        images.mkdir(mode=0o700)
        made.space.output("mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", images)
        made.space.output("cp", "-a", f"{kept}/.", images)

    flags = ("--image-gc-period", 1, "--minimum-image-ttl-duration", 1, "--eviction-pressure-transition-period", 3)
    flags += (
        "--image-gc-high-threshold",
        60,
        "--image-gc-low-threshold",
        50,
        "--eviction-hard",
        "imagefs.available<25%",
    )
    with running(template, *flags, prepare=prepare) as made:
        registry = Registry(made)
        try:
            registry.push("small", size=1 << 20)
            registry.push("first", "second", "third", size=30 << 20)
            (made.root / "config.json").write_text(json.dumps({"auths": {HOST: LOGIN}}))
            yield made
            (made.root / "config.json").unlink()
        finally:
            registry.stop()


def start(node, pod, container, name, repository):
    image = f"{HOST}/{repository}:1"
    containers = [container("c", WORDS, image=image, imagePullPolicy="IfNotPresent")]
    node.make(pod(name, containers=containers, terminationGracePeriodSeconds=1))
    node.wait(f"pod/{name}", "condition=Ready")


def images(node):
    return {tag.rpartition("/")[2] for image in node.cri("ListImages").images for tag in image.repo_tags}


def test_images_that_no_container_has_go_when_their_disk_is_nearly_full(node, pod, container, name):
    start(node, pod, container, f"{name}-small", "small")
    start(node, pod, container, f"{name}-one", "first")
    node(f"delete pod {name}-one")
    assert "first:1" in images(node)  # 35 % of the disk
    start(node, pod, container, f"{name}-two", "second")
    node.eventually(lambda: "first:1" not in images(node), lambda: images(node))
    assert images(node) == {"busybox:latest", "small:1", "second:1"}  # imported ones cannot be pulled again


def test_a_pod_is_not_evicted_when_removing_images_is_enough(node, pod, container, name):
    node("delete pods --all --grace-period=1")
    start(node, pod, container, f"{name}-small", "small")
    filler = node.runtime.state / "images/filler"
    node.space.output("dd", "if=/dev/zero", f"of={filler}", "bs=1M", "count=40", "status=none")
    try:
        node.eventually(lambda: "second:1" not in images(node), lambda: images(node))
        assert node.get(f"pod {name}-small")["status"]["phase"] == "Running"
    finally:
        node.space.output("rm", filler)
    assert not [pod for pod in node.get("pods")["items"] if pod["status"].get("reason") == "Evicted"]


def test_a_disk_that_other_files_fill_is_an_event_of_the_node(node):
    filler = node.runtime.state / "images/filler"
    node.space.output("dd", "if=/dev/zero", f"of={filler}", "bs=1M", "count=62", "status=none")
    try:
        message = node.event_message("node", "FreeDiskSpaceFailed")
        assert message.startswith("Insufficient free disk space on the node's image filesystem (")
        assert node.event_message("node", "ImageGCFailed").startswith("Insufficient free disk space")
    finally:
        node.space.output("rm", filler)
