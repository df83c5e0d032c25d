"""Builds the static C programs of the wheel: podwire-shim and podwire-cni. Fails the build when it cannot."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ("podwire-shim", "podwire-cni")
FLAGS = ("-std=c11", "-O2", "-static", "-s", "-Wall", "-Wextra", "-Werror")
HELP = "install a C compiler (Debian: apt install gcc libc6-dev), or use the wheel of this platform"


def find_compiler() -> str | None:
    requested = os.environ.get("CC")
    return next(filter(None, map(shutil.which, [requested] if requested else ["gcc", "cc"])), None)


def wheel_tag(architecture: str | None) -> str:
    """Tags of platforms as pip knows them. An architecture is given for a wheel that is published.

    Static programs need no libc of the machine, so the oldest that pip names for both architectures is right.
    """
    platform = f"manylinux_2_17_{architecture}" if architecture else sysconfig.get_platform()
    return f"py3-none-{platform.replace('-', '_').replace('.', '_')}"


def compile_program(root: Path, target: Path) -> str:
    """Compiles `shim/NAME.c`. Returns the error, empty when it succeeded."""
    compiler = find_compiler()
    if compiler is None:
        return f"{os.environ.get('CC') or 'gcc'} is not on PATH"
    source = root / "shim" / f"{target.name}.c"
    done = subprocess.run([compiler, *FLAGS, "-o", target, source], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


class ShimHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's type parameter is a config that we do not have
    """Makes the wheel one of this platform; it does not depend on the interpreter."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        directory = Path(self.root, "build")
        directory.mkdir(exist_ok=True)
        programs = [directory / name for name in PROGRAMS]
        for program in programs:
            if error := compile_program(Path(self.root), program):
                self.app.abort(f"podwire: cannot compile {program.name}: {error.strip()}; {HELP}")
        build_data["shared_scripts"] |= {str(program): program.name for program in programs}
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag(os.environ.get("PODWIRE_ARCHITECTURE"))
        if version != "editable":
            build_data["force_include"] |= {str(program): f"podwire/shim/{program.name}" for program in programs}
