"""PodSandboxConfig of CRI for a pod. Pure."""

from podwire.kubelet.config.linux_resources import overhead_message, pod_limits_message
from podwire.kubelet.config.security import groups_policy, namespaces, supplemental_groups
from podwire.kubelet.pods.observed import NAME, NAMESPACE, UID
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb

SEEN, SOURCE = "kubernetes.io/config.seen", "kubernetes.io/config.source"
"""Annotations: when the kubelet first saw the pod, and from which source."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl keeps a copy of the pod, with values of environment variables. A runtime has no use
for it, and would keep it in its records."""


def sandbox_config(
    pod: Pod,
    *,
    attempt: int,
    hostname: str,
    dns: pb.DNSConfig,
    log_directory: str,
    cgroup_parent: str = "",
    seen: str = "",
    source: str = "api",
    first_id: int = 0,
    pids: int = 0,
) -> pb.PodSandboxConfig:
    """Raises ConfigError. A pod on the node's network has the node's name; `hostname` is ignored.

    `pids` limits the processes and threads of the pod, unless it is 0: the runtime makes a cgroup for the pod.
    """
    annotations = {SOURCE: source, **({SEEN: seen} if seen else {}), **pod.metadata.annotations}
    annotations.pop(LAST_APPLIED, None)
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=pod.name, namespace=pod.namespace, uid=pod.uid, attempt=attempt),
        hostname="" if pod.spec.host_network else hostname,
        log_directory=log_directory,
        dns_config=dns,
        port_mappings=_ports(pod),
        labels={**pod.metadata.labels, NAME: pod.name, NAMESPACE: pod.namespace, UID: pod.uid},
        annotations=annotations,
        linux=_linux(pod, cgroup_parent, first_id, pids),
    )


def _ports(pod: Pod) -> list[pb.PortMapping]:
    """Host ports."""
    ports = (port for container in pod.spec.containers for port in container.ports if port.host_port)
    return [
        pb.PortMapping(
            protocol=port.protocol,
            container_port=port.container_port,
            host_port=port.host_port,
            host_ip=port.host_ip,
        )
        for port in ports
    ]


def pod_resources(pod: Pod, pids: int) -> pb.LinuxContainerResources:
    """The sum over the containers of a pod, and the limit of its processes unless that is 0."""
    resources = pod_limits_message(pod)
    if pids:
        resources.unified["pids.max"] = str(pids)
    return resources


def _linux(pod: Pod, cgroup_parent: str, first_id: int, pids: int) -> pb.LinuxPodSandboxConfig:
    return pb.LinuxPodSandboxConfig(
        cgroup_parent=cgroup_parent,
        security_context=_security(pod, first_id),
        sysctls={sysctl.name: sysctl.value for sysctl in pod.spec.security_context.sysctls},
        resources=pod_resources(pod, pids),
        overhead=overhead_message(pod),
    )


def _security(pod: Pod, first_id: int) -> pb.LinuxSandboxSecurityContext:
    """The sandbox always has the default seccomp profile: it needs no special system calls."""
    shared = pod.spec.security_context
    context = pb.LinuxSandboxSecurityContext(
        namespace_options=namespaces(pod, first_id),
        supplemental_groups=supplemental_groups(pod),
        supplemental_groups_policy=groups_policy(pod),
        privileged=any(container.security_context.privileged for container in pod.spec.every_container),
        seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
    )
    if shared.run_as_user is not None:
        context.run_as_user.value = shared.run_as_user
    if shared.run_as_group is not None:
        context.run_as_group.value = shared.run_as_group
    return context
