"""Resources that this process uses, under the names that clients of Prometheus give them."""

import os
from collections.abc import Iterator

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_OPEN_FILES = "Max open files"


def own_usage() -> Iterator[tuple[str, str, float]]:
    """Yields name, meaning and value of processor time, memory, open files, threads and the start of this process."""
    stat = _read("/proc/self/stat").rpartition(")")[2].split()
    boot = next((int(line.split()[1]) for line in _read("/proc/stat").splitlines() if line.startswith("btime")), 0)
    limits = next(line for line in _read("/proc/self/limits").splitlines() if line.startswith(_OPEN_FILES))
    soft = limits.removeprefix(_OPEN_FILES).split()[0]
    used = os.times()
    yield "process_cpu_seconds_total", "Processor time that was used", round(used.user + used.system, 3)
    yield "process_resident_memory_bytes", "Memory that is used", int(stat[21]) * _PAGE
    yield "process_virtual_memory_bytes", "Address space that is used", int(stat[20])
    yield "process_threads", "Threads", int(stat[17])
    yield "process_open_fds", "Open files", len(os.listdir("/proc/self/fd"))
    yield "process_max_fds", "Limit of open files", float("inf") if soft == "unlimited" else int(soft)
    yield "process_start_time_seconds", "Start, in seconds since 1970", boot + int(stat[19]) / _TICKS


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()
