"""wrk as the load: one kind of request over kept-alive TLS connections, as fast as the server answers."""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import CannotMeasure, on_core, program
from benchmarks.server import JSON, TOKEN

SCRIPT = Path(__file__).with_name("load.lua")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests that differ by a number: see load.lua for `%d`, `first`, `cycle` and `limit`."""

    method: str
    path: str
    body: str = ""
    content_type: str = JSON
    first: int = 0
    cycle: int = 0
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of wrk; times in milliseconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    max: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def run(load: Load, *, port: int, connections: int, seconds: float) -> Loaded:
    """Raises CannotMeasure when anything but success came back: refusals are quick and would look good."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as body:
        body.write(load.body)
        body.flush()
        counts = _wrk(load, body.name if load.body else "-", port, connections, seconds)
    if counts["refused"] or counts["broken"] or not counts["requests"]:
        raise CannotMeasure(f"{load.method} {load.path}: {counts}")
    p50, p99, longest = (counts[name] / 1e3 for name in ("p50", "p99", "max"))
    return Loaded(counts["requests"], counts["microseconds"] / 1e6, p50, p99, longest)


def _wrk(load: Load, body: str, port: int, connections: int, seconds: float) -> dict[str, int]:
    whole = max(1, round(seconds))  # wrk counts in whole seconds
    command = [*on_core(-1), program("wrk"), "-t1", f"-c{connections}", f"-d{whole}s", "--timeout", "30s"]
    command += ["-s", str(SCRIPT), f"https://127.0.0.1:{port}", "--"]
    command += [load.method, load.path, body, load.content_type, str(load.first), str(load.cycle), str(load.limit)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "BENCH_TOKEN": TOKEN}
    )
    if done.returncode:
        raise CannotMeasure(f"wrk failed: {done.stderr.strip() or done.stdout.strip()}")
    counts: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return counts
