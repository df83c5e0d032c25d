"""Records as the messages that kubelets and crictl read. Pure."""

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
    """The whole truth about a sandbox; its addresses only while its network stands."""
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
        status.network.additional_ips.extend(pb.PodIP(ip=each) for each in others)
    return status


def sandbox_row(sandbox: Sandbox) -> pb.PodSandbox:
    """A sandbox in a list."""
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
    """The whole truth about a container; times that have not come are zero."""
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
    """A container in a list."""
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
    """The image by the name that the pod uses, which is what people look for."""
    return pb.ImageSpec(image=config.image.user_specified_image or config.image.image)


def picked_sandboxes(all_: Iterable[Sandbox], wanted: pb.PodSandboxFilter) -> list[Sandbox]:
    return [each for each in all_ if _sandbox_fits(each, wanted)]


def _sandbox_fits(sandbox: Sandbox, wanted: pb.PodSandboxFilter) -> bool:
    if wanted.id and not sandbox.id.startswith(wanted.id):
        return False
    if wanted.HasField("state") and wanted.state.state != sandbox_state(sandbox):
        return False
    return _labelled(sandbox.config.labels, wanted.label_selector)


def picked_containers(all_: Iterable[Container], wanted: pb.ContainerFilter) -> list[Container]:
    return [each for each in all_ if _container_fits(each, wanted)]


def _container_fits(container: Container, wanted: pb.ContainerFilter) -> bool:
    if wanted.id and not container.id.startswith(wanted.id):
        return False
    if wanted.pod_sandbox_id and not container.record.sandbox_id.startswith(wanted.pod_sandbox_id):
        return False
    if wanted.HasField("state") and wanted.state.state != _CONTAINER_STATES[container.record.state]:
        return False
    return _labelled(container.config.labels, wanted.label_selector)


def _labelled(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())
