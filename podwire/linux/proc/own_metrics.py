"""Metrics of this process, with the names that clients of Prometheus use."""

import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from podwire.protocols.prometheus import family

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def process_lines() -> Iterator[str]:
    """Yields processor time, memory, open files, threads and start time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    boot = next(
        (int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")), 0
    )
    numbers = (
        ("process_cpu_seconds_total", "Processor time that was used", round(used.ru_utime + used.ru_stime, 3)),
        ("process_resident_memory_bytes", "Memory that is used", int(stat[21]) * _PAGE),
        ("process_virtual_memory_bytes", "Address space that is used", int(stat[20])),
        ("process_threads", "Threads", int(stat[17])),
        ("process_open_fds", "Open files", len(os.listdir("/proc/self/fd"))),
        ("process_max_fds", "Limit of open files", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ("process_start_time_seconds", "Start, in seconds since 1970", boot + int(stat[19]) / _TICKS),
        (
            "python_gc_collections_total",
            "Runs of the garbage collector",
            sum(row["collections"] for row in gc.get_stats()),
        ),
    )
    for name, meaning, value in numbers:
        yield from family(name, meaning, [((), value)])
