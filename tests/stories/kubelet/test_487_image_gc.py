"""A real node removes unused images when their disk is nearly full."""

import json

import pytest

from tests.stories.kubelet.registry import HOST, Registry

LOGIN = {"username": "ann", "password": "secret"}
WORDS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def node(running, template):
    """The disk of its images has 96 MiB; its kubelet looks every second, and images may go at once."""

    def prepare(made):
        state, before = made.runtime.state, made.prefix / "state-before"
        state.rename(before)
        state.mkdir(mode=0o700)
        made.space.output("mount", "-t", "tmpfs", "-o", "size=96m,mode=700", "tmpfs", state)
        made.space.output("cp", "-a", f"{before}/.", state)

    flags = ("--image-gc-period", 1, "--minimum-image-ttl-duration", 1, "--eviction-pressure-transition-period", 3)
    with running(template, *flags, "--eviction-hard", "imagefs.available<1%", prepare=prepare) as made:
        registry = Registry(made)
        try:
            registry.push("third", "fourth", size=16 << 20)
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


def fill(node, mebibytes):
    file = node.runtime.state / "filler"
    node.space.output(
        "sh", "-c", f"dd if=/dev/zero of={file} bs=1M count={mebibytes} 2>&1 || true"
    )  # as far as it goes
    return file


def test_images_that_no_container_has_go_when_their_disk_is_nearly_full(node, pod, container, name):
    for repository in ("third", "fourth"):
        start(node, pod, container, f"{name}-{repository}", repository)
        node(f"delete pod {name}-{repository}")
    file = fill(node, 50)  # 90 %
    try:
        node.eventually(lambda: not {"third:1", "fourth:1"} <= images(node), lambda: images(node))
    finally:
        node.space.output("rm", file)
    assert "disk of images is nearly full" in node.kubelet.log.read_text()
