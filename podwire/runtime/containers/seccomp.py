"""Seccomp profiles of containers: Localhost profiles are read, and all are compiled once instead of at every start."""

import base64
import os
import stat
from functools import lru_cache
from typing import Any

import msgspec

from podwire.linux.proc.seccomp import compile_profile
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.spec.mounts import clean_path
from podwire.runtime.spec.seccomp import LOCALHOST_FIELD

PROFILE_BYTES = 1024 * 1024
"""The largest Localhost profile."""
COMPILED = "run.oci.seccomp_bpf_data"
"""crun's annotation for a filter that is compiled already; other runtimes ignore it and compile `linux.seccomp`."""


def read_localhost_profile(security: pb.LinuxContainerSecurityContext) -> bytes:
    """Returns the file of a Localhost profile; empty for other kinds. Raises InvalidArgument."""
    if security.privileged or security.seccomp.profile_type != pb.SecurityProfile.Localhost:
        return b""
    path = clean_path(security.seccomp.localhost_ref, LOCALHOST_FIELD)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidArgument(f"{LOCALHOST_FIELD}: {path}: {error.strerror}") from error
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise InvalidArgument(f"{LOCALHOST_FIELD}: {path} is not a file")
        content = opened.read(PROFILE_BYTES + 1)
    if len(content) > PROFILE_BYTES:
        raise InvalidArgument(f"{LOCALHOST_FIELD}: {path} is larger than {PROFILE_BYTES} bytes")
    return content


def with_compiled_seccomp(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns a specification with its seccomp profile compiled, as far as that is possible.

    Called last, when NRI plugins have changed the profile: the compiled filter would hide their change.
    """
    profile = spec.get("linux", {}).get("seccomp")
    annotations = {key: value for key, value in spec.get("annotations", {}).items() if key != COMPILED}
    if profile and (compiled := _compiled(msgspec.json.encode(profile))):
        annotations[COMPILED] = compiled
    return {**spec, "annotations": annotations}


@lru_cache(maxsize=64)
def _compiled(profile: bytes) -> str:
    """A node has few profiles: the default one for a few sets of capabilities."""
    program = compile_profile(msgspec.json.decode(profile))
    return base64.b64encode(program).decode() if program else ""
