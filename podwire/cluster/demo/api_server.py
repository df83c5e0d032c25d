"""An API server in a temporary directory, for the demo: it exists while the context is open."""

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
"""Pods are rejected before this service account exists; a controller creates it right after the start."""


class NotUp(Exception):
    """The API server did not start; has the end of its log."""


class DemoApiServer:
    """A directory with a server's state, its log and the manifests; the server is a child process."""

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
            # Its own session: Ctrl-C reaches the demo, which then stops the server.
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until_up(self, begin: float) -> None:
        """Waits until /readyz succeeds; then, without counting the time, for the first service account."""
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
def api_server(stops: SignalGuard, *, keep: bool) -> Iterator[DemoApiServer]:
    """Runs a server while the context is open; with `keep`, also afterwards, unless something fails."""
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="podwire-demo-"))
        undo.callback(shutil.rmtree, folder)
        server = DemoApiServer(folder, stops)
        undo.callback(server.stop)
        yield server
        if keep:
            undo.pop_all()


def _answers(access: Access, path: str) -> bool:
    url = urlsplit(access.server)
    connection = http.client.HTTPSConnection(url.netloc, context=credentials.ssl_context(access), timeout=UP_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
