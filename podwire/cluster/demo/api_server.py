"""An API server in a temporary folder: up within the context, gone without a trace after it."""

import contextlib
import http.client
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from podwire.cluster.demo.manifests import API, write
from podwire.cluster.demo.signals import SignalGuard
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.transports import credentials

UP_SECONDS = 30.0
STOP_SECONDS = 10.0
TAIL = 15

FIRST_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
"""No pod is taken before its service account is there; a controller makes it right after the start."""


class NotUp(Exception):
    """The API server did not come up; carries the end of its log."""


class Stage:
    """A folder with a server's state, its log and the tour's manifests; the server is a child process."""

    def __init__(self, folder: Path, stops: SignalGuard) -> None:
        self.folder = folder
        self._stops = stops
        self.kubeconfig = folder / "kubeconfig"
        self.command = f"podwire apiserver --data-dir {folder} --listen 127.0.0.1:0"
        self.ready_ms = 0.0
        self.url = ""
        write(API, folder)
        words = [sys.executable, "-m", "podwire.cli.main", *self.command.split()[1:]]
        with (folder / "log").open("wb") as log:
            # A session of its own: Ctrl-C reaches the demo, which then ends the server in good order.
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until_up(self, begin: float) -> None:
        """Until /readyz says so; then, uncounted, until the first service account is there."""
        end = begin + UP_SECONDS
        while not self.kubeconfig.exists():
            self._pause(end)
        access = credentials.load(self.kubeconfig)
        while not _answers(access, "/readyz"):
            self._pause(end)
        self.ready_ms = (time.perf_counter() - begin) * 1e3
        self.url = access.server
        while not _answers(access, FIRST_ACCOUNT):
            self._pause(end)

    def _pause(self, end: float) -> None:
        if self.process.poll() is not None:
            raise NotUp(f"the API server ended with code {self.process.returncode}\n{self.log_tail()}")
        if time.perf_counter() > end:
            raise NotUp(f"the API server is not ready after {UP_SECONDS:g} s\n{self.log_tail()}")
        self._stops.heed()
        time.sleep(0.005)

    def log_tail(self) -> str:
        lines = (self.folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-TAIL:])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def staged(stops: SignalGuard, *, keep: bool) -> Iterator[Stage]:
    """A stage for as long as the context is open; with `keep`, for longer, unless something goes wrong."""
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="podwire-demo-"))
        undo.callback(shutil.rmtree, folder)
        stage = Stage(folder, stops)
        undo.callback(stage.stop)
        yield stage
        if keep:
            undo.pop_all()


def _answers(access: Access, path: str) -> bool:
    where = urlsplit(access.server)
    wire = http.client.HTTPSConnection(where.netloc, context=credentials.ssl_context(access), timeout=UP_SECONDS)
    with contextlib.closing(wire):
        try:
            wire.request("GET", path)
            return wire.getresponse().status == http.client.OK
        except OSError:
            return False
