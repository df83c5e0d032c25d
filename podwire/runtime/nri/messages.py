"""Pods and containers as NRI's plugins see them. Pure, but for asking whether a namespace is still there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.oci import container_of
from podwire.runtime.containers.container import Container
from podwire.runtime.nri.resources import from_cri, from_limits
from podwire.runtime.sandboxes.sandbox import Sandbox

STATES = {
    "created": pb.CONTAINER_CREATED,
    "running": pb.CONTAINER_RUNNING,
    "exited": pb.CONTAINER_STOPPED,
}


def pod_of(sandbox: Sandbox) -> pb.PodSandbox:
    """A pod; its network namespace only while that is there."""
    config, record, metadata = sandbox.config, sandbox.record, sandbox.config.metadata
    pod = pb.PodSandbox(
        id=sandbox.id,
        name=metadata.name,
        uid=metadata.uid,
        namespace=metadata.namespace,
        labels=dict(config.labels),
        annotations={**config.annotations, **_annotations(sandbox)},
        runtime_handler=record.handler,
        ips=record.addresses,
    )
    linux = pod.linux
    linux.cgroup_parent = config.linux.cgroup_parent
    for kind, path in (("network", record.network), ("ipc", record.ipc)):
        if path and Path(path).exists():
            linux.namespaces.add(type=kind, path=path)
    linux.pod_overhead.CopyFrom(from_cri(config.linux.overhead))
    linux.pod_resources.CopyFrom(from_cri(config.linux.resources))
    return pod


def _annotations(sandbox: Sandbox) -> dict[str, str]:
    """What plugins written for containerd look for."""
    metadata = sandbox.config.metadata
    return {
        "io.kubernetes.cri.container-type": "sandbox",
        "io.kubernetes.cri.sandbox-id": sandbox.id,
        "io.kubernetes.cri.sandbox-name": metadata.name,
        "io.kubernetes.cri.sandbox-namespace": metadata.namespace,
        "io.kubernetes.cri.sandbox-uid": metadata.uid,
        "io.kubernetes.cri.sandbox-log-directory": sandbox.config.log_directory,
    }


def container_message(container: Container, spec: Mapping[str, Any]) -> pb.Container:
    """A container by the specification that it has now."""
    config = container.config
    told = container_of(spec)
    told.id = container.id
    told.pod_sandbox_id = container.record.sandbox_id
    told.name = config.metadata.name
    told.labels.update(config.labels)
    told.annotations.update(config.annotations)
    told.image.name = config.image.user_specified_image or config.image.image
    told.image.config_digest = container.record.image_id
    told.linux.resources.MergeFrom(from_limits(container.limits))
    return told


def refresh(of_spec: pb.Container, container: Container, *, pid: int = 0) -> pb.Container:
    """The same container with what changes of it while it lives."""
    record, told = container.record, pb.Container()
    told.CopyFrom(of_spec)
    told.state = STATES[record.state]
    told.pid = pid or (record.pid if container.running else 0)
    told.created_at, told.started_at, told.finished_at = record.created_at, record.started_at, record.finished_at
    told.exit_code = record.exit_code
    told.status_reason, told.status_message = record.reason, record.message
    told.linux.resources.CopyFrom(from_limits(container.limits))
    return told
