"""The kubectl of this machine: one on PATH always wins over the one that set-up unpacked from Debian's package."""

import os
import shutil
import sys
from pathlib import Path

UNPACKED = tuple(Path(sys.prefix) / "debian" / directory / "kubectl" for directory in ("current", "usr/bin"))
"""A current one where Debian had it, and that of Debian 12."""


class NoKubectl(Exception):
    """Says where kubectl was looked for, and what helps."""


def find_kubectl() -> str:
    """Raises NoKubectl."""
    program = shutil.which("kubectl") or next((str(path) for path in UNPACKED if os.access(path, os.X_OK)), "")
    if not program:
        raise NoKubectl(
            f"kubectl is neither on PATH nor at {UNPACKED[0]}; install it (Debian: `apt install kubernetes-client`)"
        )
    return program
