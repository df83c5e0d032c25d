"""From volumeMounts to mounts of CRI."""

import pytest

from podwire.kubelet.volumes.container_mounts import cri_mount
from podwire.kubelet.volumes.errors import VolumeError
from podwire.objects.containers import VolumeMount
from podwire.objects.volumes import ConfigMapSource, EmptyDir, Volume
from podwire.protocols.cri import cri_pb2 as pb

SCRATCH = Volume(name="v", empty_dir=EmptyDir())
OBJECT = Volume(name="v", config_map=ConfigMapSource(name="x"))


def mount(**given):
    return VolumeMount(name="v", **{"mount_path": "/v", **given})


@pytest.mark.parametrize(
    ("given", "volume", "recursive", "expected"),
    [
        pytest.param(mount(), SCRATCH, False, pb.Mount(container_path="/v"), id="plain"),
        pytest.param(
            mount(read_only=True), SCRATCH, False, pb.Mount(container_path="/v", readonly=True), id="readOnly"
        ),
        pytest.param(mount(), OBJECT, False, pb.Mount(container_path="/v", readonly=True), id="contents are read-only"),
        pytest.param(mount(mount_path="v"), SCRATCH, False, pb.Mount(container_path="/v"), id="a relative path"),
        pytest.param(
            mount(mount_propagation="Bidirectional"),
            SCRATCH,
            False,
            pb.Mount(container_path="/v", propagation=pb.PROPAGATION_BIDIRECTIONAL),
            id="Bidirectional",
        ),
        pytest.param(
            mount(mount_propagation="HostToContainer"),
            SCRATCH,
            False,
            pb.Mount(container_path="/v", propagation=pb.PROPAGATION_HOST_TO_CONTAINER),
            id="HostToContainer",
        ),
        pytest.param(
            mount(read_only=True, recursive_read_only="IfPossible"),
            SCRATCH,
            False,
            pb.Mount(container_path="/v", readonly=True),
            id="recursive if possible, and it is not",
        ),
        pytest.param(
            mount(read_only=True, recursive_read_only="Enabled"),
            SCRATCH,
            True,
            pb.Mount(container_path="/v", readonly=True, recursive_read_only=True),
            id="recursive",
        ),
        pytest.param(
            mount(read_only=True, recursive_read_only="Disabled"),
            SCRATCH,
            True,
            pb.Mount(container_path="/v", readonly=True),
            id="not recursive",
        ),
    ],
)
def test_a_volume_mount_becomes_a_mount(given, volume, recursive, expected):
    expected.host_path = "/host"
    assert cri_mount(given, volume, "/host", recursive=recursive) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (mount(read_only=True, recursive_read_only="Enabled"), "it is not supported by the runtime"),
        (mount(recursive_read_only="IfPossible"), "it is not read-only"),
        (
            mount(read_only=True, recursive_read_only="IfPossible", mount_propagation="HostToContainer"),
            "not compatible with propagation HostToContainer",
        ),
        (mount(read_only=True, recursive_read_only="Perhaps"), 'unknown recursive read-only mode "Perhaps"'),
        (mount(mount_propagation="Sideways"), 'invalid MountPropagation mode: "Sideways"'),
    ],
)
def test_unsupported_mount_options_are_rejected(given, words):
    with pytest.raises(VolumeError, match=words):
        cri_mount(given, SCRATCH, "/host", recursive=False)
