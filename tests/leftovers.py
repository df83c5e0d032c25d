"""Lists what podwire created in these namespaces and on this machine, by owner tags, whatever its prefix.

    python tests/leftovers.py                 lists it, one resource per line
    python tests/leftovers.py --since FILE    fails, and lists them, if there are resources that FILE does not list

A failed test may leave resources behind that no prefix explains any more; this finds them all the same. `scripts/test`
calls it inside the namespaces of the test run, where all links, nft tables, mounts and files in /tmp and /run/netns
belong to that run. Processes, slots and cgroups are visible machine-wide: a process belongs to the run if it has the
run's marker in its environment, a slot if its prefix is a directory in the private /tmp, and a cgroup unless the slot
of another cluster explains its name.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

GRACE_SECONDS = 15.0
"""For resources that are just being removed."""
SLOTS = Path("/var/lib/podwire/slots")
MARKER = "PODWIRE_TEST_DIRECTORY"


def slots() -> Iterator[tuple[Path, str, bool]]:
    """Each slot's file, the prefix that claimed it, and whether that prefix belongs to this run."""
    for path in SLOTS.glob("[0-9]*"):
        try:
            prefix = str(json.loads(path.read_bytes())["prefix"])
        except (OSError, ValueError, KeyError):
            continue
        yield path, prefix, prefix.startswith("/tmp/") and Path(prefix).is_dir()


def cgroups() -> Iterator[str]:
    foreign = {
        "podwire" if prefix == "/" else f"podwire-{hashlib.sha256(prefix.encode()).hexdigest()[:12]}"
        for _, prefix, ours in slots()
        if not ours
    }
    for pattern in ("*/podwire*", "podwire*"):
        for path in Path("/sys/fs/cgroup").glob(pattern):
            if not any(path.name == parent or path.name.startswith(f"{parent}-node") for parent in foreign):
                yield str(path)


def processes() -> Iterator[str]:
    """Daemons and shims that this run started."""
    marker = f"{MARKER}={os.environ.get(MARKER, '')}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            ours = marker in (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours and any(b"/podwire" in word for word in words[:3]):
            yield f"process {path.name}: {b' '.join(words).decode(errors='replace')[:120]}"


def mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        target = line.split()[4]
        if "podwire" in target or target.startswith("/tmp/"):
            yield f"mount {target}"


def links() -> Iterator[str]:
    for link in json.loads(_output("ip", "-j", "-d", "link") or "[]"):
        if str(link.get("ifalias", "")).startswith("podwire:"):
            yield f"link {link['ifname']} ({link['ifalias']})"


def tables() -> Iterator[str]:
    for line in _output("nft", "list", "tables").splitlines():
        if "podwire" in line:
            yield f"nft {line}"


def files() -> Iterator[str]:
    yield from map(str, Path("/run/netns").glob("podwire-*"))
    for pattern in ("pw*", "podwire-*"):
        yield from map(str, Path("/tmp").glob(pattern))
    yield from (str(path) for path, _, ours in slots() if ours)


def _output(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=20).stdout
    except OSError:
        return ""


def leftovers() -> set[str]:
    return {line for look in (cgroups, processes, mounts, links, tables, files) for line in look()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.since is None:
        sys.stdout.write("".join(f"{line}\n" for line in sorted(leftovers())))
        return 0
    before = set(arguments.since.read_text(encoding="utf-8").splitlines())
    deadline = time.monotonic() + GRACE_SECONDS
    while (new := leftovers() - before) and time.monotonic() < deadline:
        time.sleep(0.5)
    sys.stdout.write("".join(f"left behind: {line}\n" for line in sorted(new)))
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
