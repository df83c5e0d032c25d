"""An OCI hook: the container starts only in the network namespace that a file names."""

import json
import os
import sys

from podwire.shim.standin.command import die, why

MOST_BYTES = 63


def check_attached(file: str) -> int:
    """The file has `dev:inode` of the namespace in which all that the pod claimed is attached."""
    pid = _pid(sys.stdin.buffer.read())
    if pid <= 0:
        die(1, "attached: stdin is no OCI state with a pid")
    wanted = _wanted(file)
    try:
        space = os.stat(f"/proc/{pid}/ns/net")
    except OSError as error:
        die(1, f"attached: process {pid}: {why(error)}")
    found = f"{space.st_dev}:{space.st_ino}"
    if wanted != found:
        die(
            1,
            f"attached: the pod's claimed network interfaces are in the network namespace {wanted}, and this container "
            f"is in {found}",
        )
    return 0


def _pid(state: bytes) -> int:
    try:
        pid = json.loads(state)["pid"]
    except (ValueError, KeyError, TypeError):
        return 0
    return pid if isinstance(pid, int) else 0


def _wanted(file: str) -> str:
    reason = "it is empty"
    try:
        with open(file, "rb") as opened:
            text = opened.read(MOST_BYTES)
    except OSError as error:
        text, reason = b"", why(error)
    if not text:
        die(1, f"attached: the pod's claimed network interfaces are not attached: {file}: {reason}")
    return text.decode("ascii", "replace").split(maxsplit=1)[0] if text.strip() else ""
