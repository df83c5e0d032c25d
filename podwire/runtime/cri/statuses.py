"""Sandboxes and containers as messages of CRI, and CRI's filters. Pure."""

from collections.abc import Iterable, Mapping

from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.container import Container
from podwire.runtime.sandboxes.sandbox import Sandbox

_CONTAINER_STATES = {
    "created": pb.CONTAINER_CREATED,
    "running": pb.CONTAINER_RUNNING,
    "exited": pb.CONTAINER_EXITED,
}


def sandbox_state(sandbox: Sandbox) -> "pb.PodSandboxState":
    return pb.SANDBOX_READY if sandbox.ready else pb.SANDBOX_NOTREADY


def sandbox_status(sandbox: Sandbox) -> pb.PodSandboxStatus:
    """Returns the status of a sandbox; addresses only while it is ready."""
    config, record = sandbox.config, sandbox.record
    status = pb.PodSandboxStatus(
        id=sandbox.id,
        metadata=config.metadata,
        state=sandbox_state(sandbox),
        created_at=record.created_at,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        runtime_handler=record.handler,
    )
    status.linux.namespaces.options.CopyFrom(config.linux.security_context.namespace_options)
    status.network.SetInParent()
    if record.addresses and sandbox.ready:
        first, *others = record.addresses
        status.network.ip = first
        status.network.additional_ips.extend(pb.PodIP(ip=address) for address in others)
    return status


def sandbox_row(sandbox: Sandbox) -> pb.PodSandbox:
    """Returns a sandbox as ListPodSandbox shows it."""
    config = sandbox.config
    return pb.PodSandbox(
        id=sandbox.id,
        metadata=config.metadata,
        state=sandbox_state(sandbox),
        created_at=sandbox.record.created_at,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        runtime_handler=sandbox.record.handler,
    )


def container_status(container: Container) -> pb.ContainerStatus:
    """Returns the status of a container; times that have not come are zero."""
    config, record = container.config, container.record
    status = pb.ContainerStatus(
        id=container.id,
        metadata=config.metadata,
        state=_CONTAINER_STATES[record.state],
        created_at=record.created_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        exit_code=record.exit_code,
        image=shown_image(config),
        image_ref=record.image_ref,
        image_id=record.image_id,
        reason=record.reason,
        message=record.message,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        mounts=list(config.mounts),
        log_path=record.log_path,
        stop_signal=config.stop_signal,
    )
    status.user.linux.uid = record.uid
    status.user.linux.gid = record.gid
    status.user.linux.supplemental_groups.extend(record.groups)
    if config.linux.HasField("resources"):
        status.resources.linux.CopyFrom(config.linux.resources)
    return status


def container_row(container: Container) -> pb.Container:
    """Returns a container as ListContainers shows it."""
    config, record = container.config, container.record
    return pb.Container(
        id=container.id,
        pod_sandbox_id=record.sandbox_id,
        metadata=config.metadata,
        image=shown_image(config),
        image_ref=record.image_ref,
        image_id=record.image_id,
        state=_CONTAINER_STATES[record.state],
        created_at=record.created_at,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
    )


def shown_image(config: pb.ContainerConfig) -> pb.ImageSpec:
    """Returns the image by the name that the pod uses."""
    return pb.ImageSpec(image=config.image.user_specified_image or config.image.image)


def filter_sandboxes(sandboxes: Iterable[Sandbox], filter_: pb.PodSandboxFilter) -> list[Sandbox]:
    return [sandbox for sandbox in sandboxes if _sandbox_matches(sandbox, filter_)]


def _sandbox_matches(sandbox: Sandbox, filter_: pb.PodSandboxFilter) -> bool:
    if filter_.id and not sandbox.id.startswith(filter_.id):
        return False
    if filter_.HasField("state") and filter_.state.state != sandbox_state(sandbox):
        return False
    return _labelled(sandbox.config.labels, filter_.label_selector)


def filter_containers(containers: Iterable[Container], filter_: pb.ContainerFilter) -> list[Container]:
    return [container for container in containers if _container_matches(container, filter_)]


def _container_matches(container: Container, filter_: pb.ContainerFilter) -> bool:
    if filter_.id and not container.id.startswith(filter_.id):
        return False
    if filter_.pod_sandbox_id and not container.record.sandbox_id.startswith(filter_.pod_sandbox_id):
        return False
    if filter_.HasField("state") and filter_.state.state != _CONTAINER_STATES[container.record.state]:
        return False
    return _labelled(container.config.labels, filter_.label_selector)


def _labelled(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())
