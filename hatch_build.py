"""Builds podwire-shim for the wheel: the static C program, or a script for its stand-in where none can be built."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "shim/podwire-shim.c"
FLAGS = ("-std=c11", "-O2", "-static", "-s", "-Wall", "-Wextra", "-Werror")
SCRIPT = """#!python
from podwire.shim.standin.__main__ import main

raise SystemExit(main())
"""


def compiler() -> str | None:
    wanted = os.environ.get("CC")
    return next(filter(None, map(shutil.which, [wanted] if wanted else ["gcc", "cc"])), None)


def compile_shim(root: Path, into: Path) -> str | None:
    """Tells why not, where it cannot be compiled."""
    cc = compiler()
    if cc is None:
        return "there is no C compiler"
    done = subprocess.run([cc, *FLAGS, "-o", into, root / SOURCE], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else None


class ShimHook(BuildHookInterface):  # type: ignore[type-arg]  # its configuration is none of ours
    """A wheel with the program is for one platform; its interpreter does not matter."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        made = Path(self.root, "build", "podwire-shim")
        made.parent.mkdir(exist_ok=True)
        missing = compile_shim(Path(self.root), made)
        if missing is not None:
            self.app.display_warning(f"podwire-shim will be the slow stand-in in Python: {missing}")
            made.write_text(SCRIPT)
            made.chmod(0o755)
        build_data["shared_scripts"][str(made)] = "podwire-shim"
        if missing is None:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            if version != "editable":
                build_data["force_include"][str(made)] = "podwire/shim/podwire-shim"
