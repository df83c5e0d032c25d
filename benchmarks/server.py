"""A real `podwire apiserver` as a child process, and a plain connection to it."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import DISK, CannotMeasure, on_core

PODWIRE = [sys.executable, "-m", "podwire.cli.main"]
"""The programs of this source tree."""
ROOT = Path(__file__).parents[1]
TOKEN = "benchmark-token"  # noqa: S105 - of a server that lives for a minute, on loopback
DEADLINE = 60.0
JSON = "application/json"


def untrusting() -> ssl.SSLContext:
    """A server that answers on the port of our child is our child."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Server:
    """A running API server; `ready_ms` is the time from exec to the first 200 of /readyz."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        data_dir.mkdir(exist_ok=True)
        tokens = data_dir / "tokens.csv"
        tokens.write_text(f'{TOKEN},bench,1,"system:masters"\n', encoding="ascii")
        self.port = _free_port()
        command = [*on_core(0), *PODWIRE, "apiserver", "--data-dir", str(data_dir), "--token-auth-file", str(tokens)]
        self._log = (data_dir / "log").open("wb")
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self.port}", *flags], stderr=self._log, cwd=ROOT, env=_environment()
        )
        self._context = untrusting()
        self.ready_ms = (self._ready(begin) - begin) * 1e3

    def _ready(self, begin: float) -> float:
        while time.perf_counter() < begin + DEADLINE:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(self.connect()) as wire:
                wire.request("GET", "/readyz")
                if wire.getresponse().status == http.client.OK:
                    return time.perf_counter()
            time.sleep(0.002)
        self.stop()
        log = Path(self._log.name).read_text(encoding="utf-8", errors="replace").strip()
        raise CannotMeasure(f"the API server did not come up: {log[-1000:]}")

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self._context, timeout=DEADLINE)

    def call(self, method: str, path: str, body: Any = None) -> None:
        """One request; what the server refuses ends the run."""
        with contextlib.closing(self.connect()) as wire:
            _ask(wire, method, path, body)

    def fill(self, path: str, objects: Iterable[Any]) -> None:
        """Create many, one after the other."""
        with contextlib.closing(self.connect()) as wire:
            for object_ in objects:
                _ask(wire, "POST", path, object_)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self.process.wait()
            self._log.close()


def _ask(wire: http.client.HTTPSConnection, method: str, path: str, body: Any) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": JSON}
    wire.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
    answer = wire.getresponse()
    body_text = answer.read()
    if answer.status >= http.client.BAD_REQUEST:
        raise CannotMeasure(f"{method} {path}: {answer.status} {body_text.decode()[:200]}")


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[Server]:
    """A server with state of its own that is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        server = Server(Path(folder), *flags)
        try:
            yield server
        finally:
            server.stop()


def _environment() -> dict[str, str]:
    """Compiled modules are kept, as they are for everybody who installed the program."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
