"""Names and limits of pods' cgroups."""

import pytest

from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.pod_cgroups import container_parent, owner_of_group, pod_limits


def config(parent="", shares=0, memory=0, **unified):
    resources = pb.LinuxContainerResources(cpu_shares=shares, memory_limit_in_bytes=memory)
    resources.unified.update({name.replace("_", "."): value for name, value in unified.items()})
    return pb.PodSandboxConfig(linux=pb.LinuxPodSandboxConfig(cgroup_parent=parent, resources=resources))


@pytest.mark.parametrize(
    ("pod", "limits", "parent"),
    [
        pytest.param(config(shares=2, memory=1), None, "all", id="no limit of the whole pod"),
        pytest.param(config(pids_max="9"), Limits(pids=9), "all/pod-s", id="processes"),
        pytest.param(config(pids_max="9", shares=7, memory=5), Limits(pids=9, cpu_shares=7), "all/pod-s", id="shares"),
        pytest.param(config(pids_max="max"), Limits(pids=-1), "all/pod-s", id="unlimited"),
        pytest.param(config(parent="/kubepods/x/", pids_max="9"), None, "kubepods/x", id="a group of the kubelet"),
    ],
)
def test_a_pod_has_a_cgroup_of_ours_if_it_has_a_limit_of_processes(pod, limits, parent):
    assert pod_limits(pod) == limits
    assert container_parent(pod, "s", "all") == parent


@pytest.mark.parametrize(
    ("path", "owner"), [("c", "c"), ("c/inner", "c"), ("pod-s", "s"), ("pod-s/c", "c"), ("pod-s/c/inner/more", "c")]
)
def test_a_cgroup_belongs_to_its_container_or_pod(path, owner):
    assert owner_of_group(path) == owner
