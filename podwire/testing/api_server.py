"""An API server alone, in a process of its own."""

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM

from podwire.linux.proc.processes import Child, reap, send_signal, spawn, wait
from podwire.testing.cluster import CommandFailed

START_SECONDS, STOP_SECONDS = 60.0, 10.0


@dataclass(slots=True)
class ApiServer:
    directory: Path
    _child: Child | None = field(default=None)

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def start(self) -> None:
        """Returns when it is ready. Raises CommandFailed."""
        log = os.open(self.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        empty = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        argv = [sys.executable, "-m", "podwire.cli.main", "apiserver", "--data-dir", str(self.directory)]
        argv += ["--store", "memory://", "--listen", "127.0.0.1:0"]
        try:
            self._child = spawn(argv, env=os.environ, files=(empty, log, log))
        finally:
            os.close(empty)
            os.close(log)
        until = time.monotonic() + START_SECONDS
        while not self.kubeconfig.exists() or not self._is_ready():
            if time.monotonic() > until or wait(self._child.pidfd, 0):
                raise CommandFailed(f"the API server did not start: {(self.directory / 'log').read_text()}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        return "is ready" in (self.directory / "log").read_text() or "serving" in (self.directory / "log").read_text()

    def stop(self) -> None:
        if self._child is not None:
            send_signal(self._child.pidfd, SIGTERM)
            wait(self._child.pidfd, STOP_SECONDS)
            reap(self._child)
            os.close(self._child.pidfd)
            self._child = None
