"""Pods and containers as messages of NRI. Pure, except for the question whether a namespace still exists."""

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


def pod_message(sandbox: Sandbox) -> pb.PodSandbox:
    """Returns a pod; its namespaces only while they exist."""
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
    """Returns annotations that plugins written for containerd read."""
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
    """Returns a container by its specification."""
    config = container.config
    message = container_of(spec)
    message.id = container.id
    message.pod_sandbox_id = container.record.sandbox_id
    message.name = config.metadata.name
    message.labels.update(config.labels)
    message.annotations.update(config.annotations)
    message.image.name = config.image.user_specified_image or config.image.image
    message.image.config_digest = container.record.image_id
    message.linux.resources.MergeFrom(from_limits(container.limits))
    return message


def refresh_message(message: pb.Container, container: Container, *, pid: int = 0) -> pb.Container:
    """Returns a copy with the fields that change: state, pid, times, exit code, resources."""
    record, fresh = container.record, pb.Container()
    fresh.CopyFrom(message)
    fresh.state = STATES[record.state]
    fresh.pid = pid or (record.pid if container.running else 0)
    fresh.created_at, fresh.started_at, fresh.finished_at = record.created_at, record.started_at, record.finished_at
    fresh.exit_code = record.exit_code
    fresh.status_reason, fresh.status_message = record.reason, record.message
    fresh.linux.resources.CopyFrom(from_limits(container.limits))
    fresh.linux.resources.devices.extend(message.linux.resources.devices)
    return fresh
