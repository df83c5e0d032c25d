"""The kubectl of this machine: one on PATH always wins over the one that set-up unpacked from Debian's package."""

import os
import shutil
import sys
from pathlib import Path

UNPACKED = Path(sys.prefix) / "debian" / "usr" / "bin" / "kubectl"


class NoKubectl(Exception):
    """Says where kubectl was looked for, and what helps."""


def find_kubectl() -> str:
    """Raises NoKubectl."""
    program = shutil.which("kubectl") or (str(UNPACKED) if os.access(UNPACKED, os.X_OK) else "")
    if not program:
        raise NoKubectl(
            f"kubectl is neither on PATH nor at {UNPACKED}; install it (Debian: `apt install kubernetes-client`)"
        )
    return program
