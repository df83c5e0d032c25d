"""A pod's sandbox as CRI is asked for it. Pure."""

from podwire.kubelet.config.linux_resources import overhead_message, pod_limits_message
from podwire.kubelet.config.security import groups_policy, namespaces, supplemental_groups
from podwire.kubelet.pods.observed import NAME, NAMESPACE, UID
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb

SEEN, SOURCE = "kubernetes.io/config.seen", "kubernetes.io/config.source"
"""Annotations that tell when this kubelet first saw a pod, and from where."""


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
) -> pb.PodSandboxConfig:
    """Raises ConfigError. A pod on the node's network has the node's name, whatever `hostname` says."""
    annotations = {SOURCE: source, **({SEEN: seen} if seen else {}), **pod.metadata.annotations}
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=pod.name, namespace=pod.namespace, uid=pod.uid, attempt=attempt),
        hostname="" if pod.spec.host_network else hostname,
        log_directory=log_directory,
        dns_config=dns,
        port_mappings=_ports(pod),
        labels={**pod.metadata.labels, NAME: pod.name, NAMESPACE: pod.namespace, UID: pod.uid},
        annotations=annotations,
        linux=_linux(pod, cgroup_parent),
    )


def _ports(pod: Pod) -> list[pb.PortMapping]:
    """Those that the node listens on for the pod; the others need nothing done."""
    ports = (port for container in pod.spec.containers for port in container.ports if port.host_port)
    return [
        pb.PortMapping(
            protocol=each.protocol,
            container_port=each.container_port,
            host_port=each.host_port,
            host_ip=each.host_ip,
        )
        for each in ports
    ]


def _linux(pod: Pod, cgroup_parent: str) -> pb.LinuxPodSandboxConfig:
    return pb.LinuxPodSandboxConfig(
        cgroup_parent=cgroup_parent,
        security_context=_security(pod),
        sysctls={each.name: each.value for each in pod.spec.security_context.sysctls},
        resources=pod_limits_message(pod),
        overhead=overhead_message(pod),
    )


def _security(pod: Pod) -> pb.LinuxSandboxSecurityContext:
    """The sandbox itself needs no special calls, so it is always confined, however free its containers are."""
    shared = pod.spec.security_context
    context = pb.LinuxSandboxSecurityContext(
        namespace_options=namespaces(pod),
        supplemental_groups=supplemental_groups(pod),
        supplemental_groups_policy=groups_policy(pod),
        privileged=any(each.security_context.privileged for each in pod.spec.every_container),
        seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
    )
    if shared.run_as_user is not None:
        context.run_as_user.value = shared.run_as_user
    if shared.run_as_group is not None:
        context.run_as_group.value = shared.run_as_group
    return context
