"""What podwire has on this machine, whoever made it and below whatever prefix: by the marks that its things bear.

    python tests/leftovers.py                 lists it, one thing a line
    python tests/leftovers.py --since FILE    fails, and lists them, if there are things that the FILE does not list

A test that fails may leave something behind that no prefix explains any more; this finds it all the same.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
PATIENCE = 15.0
"""Seconds for what is just going away."""


def cgroups() -> Iterator[str]:
    for each in Path("/sys/fs/cgroup").glob("*/podwire*"):
        yield str(each)
    for each in Path("/sys/fs/cgroup").glob("podwire*"):
        yield str(each)


def processes() -> Iterator[str]:
    """Daemons and shims of this checkout; not the tests, this script, nor whoever started them."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        program = next((word for word in words[:3] if word.startswith(f"{HERE}/.venv/bin/podwire".encode())), None)
        if program is not None:
            yield f"process {each.name}: {b' '.join(words).decode(errors='replace')[:120]}"


def mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        target = line.split()[4]
        if "podwire" in target or target.startswith("/tmp/pw"):
            yield f"mount {target}"


def links() -> Iterator[str]:
    for each in json.loads(_output("ip", "-j", "-d", "link") or "[]"):
        if str(each.get("ifalias", "")).startswith("podwire:"):
            yield f"link {each['ifname']} ({each['ifalias']})"


def tables() -> Iterator[str]:
    for line in _output("nft", "list", "tables").splitlines():
        if "podwire" in line:
            yield f"nft {line}"


def files() -> Iterator[str]:
    places = (("/var/lib/podwire/slots", "*"), ("/run/netns", "podwire-*"), ("/tmp", "pw-*"), ("/tmp", "podwire-*"))
    for directory, pattern in places:
        for each in Path(directory).glob(pattern):
            if not each.name.startswith("."):
                yield str(each)


def _output(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=20).stdout
    except OSError:
        return ""


def found() -> set[str]:
    return {each for look in (cgroups, processes, mounts, links, tables, files) for each in look()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.since is None:
        sys.stdout.write("".join(f"{each}\n" for each in sorted(found())))
        return 0
    before = set(arguments.since.read_text(encoding="utf-8").splitlines())
    until = time.monotonic() + PATIENCE
    while (new := found() - before) and time.monotonic() < until:
        time.sleep(0.5)
    sys.stdout.write("".join(f"left behind: {each}\n" for each in sorted(new)))
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
