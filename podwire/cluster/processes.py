"""What the kernel knows about a process."""

from pathlib import Path


def memory_of(process: int) -> int:
    """Bytes of memory: its own, and its share of what it has in common with others (PSS)."""
    for line in Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * 1024
    raise LookupError(f"process {process} does not tell its memory")
