"""`podwire doctor`: what this machine lacks."""

import argparse
import dataclasses
import json

from podwire.inspect.doctor import Finding, examine


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """1 only when something is missing without which nothing runs."""
    found = examine()
    if arguments.output == "json":
        print(json.dumps([dataclasses.asdict(finding) for finding in found], indent=2))
    else:
        for finding in found:
            _show(finding)
    return 1 if any(finding.needed and not finding.ok for finding in found) else 0


def _show(finding: Finding) -> None:
    mark = "ok" if finding.ok else "MISSING" if finding.needed else "note"
    print(f"{mark:8} {finding.name:20} {finding.detail}".rstrip())
    if not finding.ok:
        print(f"{'':8} {'':20} try: {finding.helps}")
