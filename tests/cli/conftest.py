"""Runs the command line as a user does: as processes."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PODWIRE = str(Path(sys.executable).with_name("podwire"))


class Daemon:
    """A `podwire` that runs until it is stopped; what it logs is kept."""

    def __init__(self, *arguments: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [PODWIRE, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ, **environ}
        )
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            with self._said:
                self.lines.append(line)
                self._said.notify_all()
        with self._said:
            self._said.notify_all()

    def wait_for(self, words: str, seconds: float = 30) -> str:
        """The first line that it logged with these words."""
        with self._said:
            assert self._said.wait_for(lambda: self._find(words) or self.process.poll() is not None, seconds), (
                self.lines
            )
        return self._find(words) or pytest.fail(f"it ended without {words!r}: {self.lines}")

    def _find(self, words: str) -> str:
        return next((line for line in self.lines if words in line), "")

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Until it ends; its exit code."""
        try:
            return self.process.wait(timeout=20)
        finally:
            self.process.kill()
            self._reader.join()
            self.process.stderr.close()


@pytest.fixture
def daemon() -> Iterator[Callable[..., Daemon]]:
    """Start one with `daemon("apiserver", …)`; those that still run end with the test, the last first, and well."""
    started: list[Daemon] = []

    def start(*arguments: str, **environ: str) -> Daemon:
        started.append(Daemon(*arguments, **environ))
        return started[-1]

    yield start
    codes = [item.stop() for item in reversed(started) if item.process.returncode is None]
    assert set(codes) <= {0}


@pytest.fixture
def podwire() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command to its end."""

    def run(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
        return subprocess.run([PODWIRE, *arguments], capture_output=True, text=True, timeout=60, check=False, **more)

    return run
