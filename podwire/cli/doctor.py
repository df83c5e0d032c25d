"""`podwire doctor`: checks what this machine lacks."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from podwire.cli.options import add_output
from podwire.cli.terminal import ProgressLine, paint
from podwire.inspect.doctor import CHECKS, Finding


def configure(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Returns 1 only if something is missing that every cluster needs."""
    findings = []
    line = ProgressLine(sys.stdout)
    for name, check in CHECKS.items():
        line.show(f"checking {name} …", at_once=True)
        findings.append(check())
        line.clear()
        if arguments.output == "text":
            _show(findings[-1])
    if arguments.output == "json":
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        _conclude(findings)
    return 1 if any(finding.needed and not finding.ok for finding in findings) else 0


def _show(finding: Finding) -> None:
    mark, colour = ("ok", "green") if finding.ok else ("MISSING", "red") if finding.needed else ("note", "yellow")
    print(f"{paint(f'{mark:8}', colour)} {finding.name:20} {finding.detail}".rstrip(), flush=True)
    if not finding.ok:
        print(f"{'':8} {'':20} try: {finding.helps}")


def _conclude(findings: Sequence[Finding]) -> None:
    missing = [finding.name for finding in findings if finding.needed and not finding.ok]
    if missing:
        print(f"\n{paint('this machine cannot run a cluster', 'red')}: missing are {', '.join(missing)}")
    else:
        print(f"\n{paint('this machine can run a cluster', 'green')}: try `podwire demo`")
