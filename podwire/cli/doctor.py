"""`podwire doctor`: checks what this machine lacks."""

import argparse
import dataclasses
import json

from podwire.cli.options import add_output
from podwire.inspect.doctor import Finding, examine


def configure(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Returns 1 only if something is missing that every cluster needs."""
    findings = examine()
    if arguments.output == "json":
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            _show(finding)
    return 1 if any(finding.needed and not finding.ok for finding in findings) else 0


def _show(finding: Finding) -> None:
    mark = "ok" if finding.ok else "MISSING" if finding.needed else "note"
    print(f"{mark:8} {finding.name:20} {finding.detail}".rstrip())
    if not finding.ok:
        print(f"{'':8} {'':20} try: {finding.helps}")
