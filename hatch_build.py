"""Builds the static C programs for the wheel. Where they cannot be built there is a script for the shim's stand-in, and
CNI plugins are Python alone."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIM, FORWARDER = "podwire-shim", "podwire-cni"
FLAGS = ("-std=c11", "-O2", "-static", "-s", "-Wall", "-Wextra", "-Werror")
SCRIPT = """#!python
from podwire.shim.standin.__main__ import main

raise SystemExit(main())
"""


def compiler() -> str | None:
    wanted = os.environ.get("CC")
    return next(filter(None, map(shutil.which, [wanted] if wanted else ["gcc", "cc"])), None)


def compile_program(root: Path, into: Path) -> str | None:
    """Tells why not, where it cannot be compiled."""
    cc = compiler()
    if cc is None:
        return "there is no C compiler"
    source = root / "shim" / f"{into.name}.c"
    done = subprocess.run([cc, *FLAGS, "-o", into, source], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else None


class ShimHook(BuildHookInterface):  # type: ignore[type-arg]  # its configuration is none of ours
    """A wheel with the program is for one platform; its interpreter does not matter."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "build")
        folder.mkdir(exist_ok=True)
        programs = [folder / SHIM, folder / FORWARDER]
        missing = next(filter(None, (compile_program(Path(self.root), each) for each in programs)), None)
        if missing is not None:
            self.app.display_warning(f"podwire-shim will be the slow stand-in in Python: {missing}")
            programs = programs[:1]
            programs[0].write_text(SCRIPT)
            programs[0].chmod(0o755)
        build_data["shared_scripts"] |= {str(each): each.name for each in programs}
        if missing is None:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            if version != "editable":
                build_data["force_include"] |= {str(each): f"podwire/shim/{each.name}" for each in programs}
