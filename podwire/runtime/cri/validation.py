"""Validates ids, names and paths of CRI requests before they are used."""

import re
import secrets
from collections.abc import Mapping

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.cri.resources import PIDS, check_pids
from podwire.runtime.spec.mounts import clean_path

ID = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}\Z")
HOSTNAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9.-]*\Z")
LABEL_BYTES = 256 * 1024


def new_id() -> str:
    """Returns 64 hexadecimal digits, as container runtimes do."""
    return secrets.token_hex(32)


def check_sandbox(config: pb.PodSandboxConfig) -> None:
    """Validates a sandbox configuration. Raises InvalidArgument with the field."""
    metadata = config.metadata
    for field in ("name", "namespace", "uid"):
        value = getattr(metadata, field)
        if not value:
            raise InvalidArgument(f"config.metadata.{field}: must be given")
        if not ID.match(value):
            raise InvalidArgument(f"config.metadata.{field}: {value!r} may hold letters, digits, '-', '_' and '.' only")
    if len(config.hostname) > 64:
        raise InvalidArgument("config.hostname: may not be longer than 64 characters")
    if config.hostname and not HOSTNAME.match(config.hostname):
        raise InvalidArgument(f"config.hostname: {config.hostname!r} may hold letters, digits, '-' and '.' only")
    if ".." in (parent := config.linux.cgroup_parent).split("/") or "\x00" in parent:
        raise InvalidArgument(f"config.linux.cgroup_parent: {parent!r} must not contain '..'")
    check_pids(config.linux.resources.unified.get(PIDS))
    if config.log_directory:
        clean_path(config.log_directory, "config.log_directory")
    _check_sizes(config.labels, "config.labels")
    _check_sizes(config.annotations, "config.annotations")
    for number, port in enumerate(config.port_mappings):
        if not 0 < port.container_port < 65536 or not 0 <= port.host_port < 65536:
            raise InvalidArgument(f"config.port_mappings[{number}]: ports are between 1 and 65535")


def check_container(config: pb.ContainerConfig) -> None:
    """Validates a container configuration. Raises InvalidArgument with the field."""
    if not ID.match(config.metadata.name):
        raise InvalidArgument(
            f"config.metadata.name: {config.metadata.name!r} must begin with a letter or digit and may hold letters, "
            "digits, '-', '_' and '.' only"
        )
    if not config.image.image:
        raise InvalidArgument("config.image.image: must be given")
    path = config.log_path
    if path.startswith("/") or ".." in path.split("/") or "\x00" in path:
        raise InvalidArgument(f"config.log_path: {path!r} must lie below the pod's log directory")
    for field, words in (("command", config.command), ("args", config.args)):
        if any("\x00" in word for word in words):
            raise InvalidArgument(f"config.{field}: contains a zero byte")
    _check_sizes(config.labels, "config.labels")
    _check_sizes(config.annotations, "config.annotations")


def _check_sizes(pairs: Mapping[str, str], field: str) -> None:
    if sum(len(key) + len(value) for key, value in pairs.items()) > LABEL_BYTES:
        raise InvalidArgument(f"{field}: may not be larger than {LABEL_BYTES} bytes together")


def sandbox_name(metadata: pb.PodSandboxMetadata) -> str:
    """Returns what identifies a sandbox: a second request with this name is a retry."""
    return f"{metadata.name}_{metadata.namespace}_{metadata.uid}_{metadata.attempt}"
