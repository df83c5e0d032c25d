"""`python -m benchmarks [PART …]`: measure, then print one table."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence

from benchmarks import (
    api,
    claims,
    client,
    cni,
    cni_leases,
    devices,
    dns,
    driver,
    forms,
    images,
    large_clusters,
    network,
    nri,
    pods,
    policy,
    runtime,
    services,
    start,
    store,
    trace,
    ui,
    watch,
    workloads,
)
from benchmarks.figures import Figure, as_json, table
from benchmarks.machine import CannotMeasure, description

Part = Callable[[float], Iterator[Figure]]

PARTS: dict[str, Part] = {
    "start": start.measure,
    "api": api.measure,
    "watch": watch.measure,
    "store": store.measure,
    "forms": forms.measure,
    "client": client.measure,
    "runtime": runtime.measure,
    "images": images.measure,
    "cni": cni.measure,
    "leases": cni_leases.measure,
    "nri": nri.measure,
    "network": network.measure,
    "devices": devices.measure,
    "claims": claims.measure,
    "driver": driver.measure,
    "pods": pods.measure,
    "policy": policy.measure,
    "workloads": workloads.measure,
    "services": services.measure,
    "dns": dns.measure,
    "trace": trace.measure,
    "ui": ui.measure,
    "scale": large_clusters.measure,
}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__ or __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (all)")
    parser.add_argument("-s", "--seconds", type=float, default=5.0, help="for each measurement (%(default)g)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args(given)
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    machine, figures = description(), []
    try:
        for name in arguments.parts or PARTS:
            for figure in PARTS[name](arguments.seconds):
                figures.append(figure)
                _tell(f"measured: {figure.group}, {figure.what}")
    except CannotMeasure as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 1
    sys.stderr.write("\r\033[K" if sys.stderr.isatty() else "")
    if arguments.output == "json":
        sys.stdout.write(json.dumps({"machine": machine, "figures": as_json(figures)}, indent=2) + "\n")
    else:
        sys.stdout.write(f"{machine}\n\n{table(figures)}\n")
    return 0


def _tell(progress: str) -> None:
    """On a terminal in one line that changes, else in a line each."""
    sys.stderr.write(f"\r\033[K{progress}" if sys.stderr.isatty() else f"{progress}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
