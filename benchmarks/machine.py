"""The machine that is measured on: its processors, a real disk, the memory of a process, and how busy it is."""

import os
import shutil
from pathlib import Path

DISK = "/var/tmp"  # noqa: S108 - a real disk; /tmp may be memory


class CannotMeasure(Exception):
    """Says what is missing or went wrong."""


def program(name: str) -> str:
    """The path of a program, from PATH or from what set-up unpacked."""
    unpacked = Path(__file__).parents[1] / ".venv" / "debian" / "usr" / "bin"
    path = shutil.which(name) or shutil.which(name, path=str(unpacked))
    if path is None:
        raise CannotMeasure(f"{name} is neither on PATH nor in {unpacked}; `scripts/setup --bench` sees to it")
    return path


def on_core(core: int) -> list[str]:
    """Returns a command prefix that pins to one processor; empty on a machine with only one."""
    cores = sorted(os.sched_getaffinity(0))
    return [program("taskset"), "-c", str(cores[core % len(cores)])] if len(cores) > 1 else []


def cpu_seconds(process: int) -> float:
    """Returns the CPU time of a process, which depends on a busy machine far less than wall-clock time."""
    after_name = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def description() -> str:
    load = os.getloadavg()[0]
    busy = "" if load < 0.5 else "; others were busy here, so take this with care"
    return f"{len(os.sched_getaffinity(0))} processors, load {load:.2f} before{busy}"
