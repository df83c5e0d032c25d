"""Real processes, real TLS, real clients: what every story needs."""

import functools
import http.client
import json
import os
import queue
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest

from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.transports import credentials
from tests.eventually import eventually

PODWIRE = Path(sys.executable).with_name("podwire")
START_SECONDS = 30.0
STOP_SECONDS = 60.0
WAIT_SECONDS = 20.0
DEBIAN = Path(sys.prefix) / "debian/usr/bin/kubectl"
"""Version 1.20, unpacked by scripts/setup; there is always this one."""
CLOUD_SDK = Path("/usr/lib/google-cloud-sdk/bin")
running_processes: "list[Process]" = []
"""Processes that run now, for the report of a test that fails."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class Process:
    """A program that dies with this one, whatever happens here; it writes a log."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def run(self, *command: object, env: dict[str, str] | None = None) -> None:
        assert not self.alive, f"{self.name} runs already"
        words = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **(env or {})})
        running_processes.append(self)

    def signal(self, number: int) -> None:
        assert self._child is not None
        self._child.send_signal(number)

    def exit_code(self, within: float = STOP_SECONDS) -> int:
        """How it ended, once it does."""
        assert self._child is not None
        code = self._child.wait(within)
        self._forget()
        return code

    def kill(self) -> None:
        """At once and for certain; fine when it is gone already."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._forget()

    def _forget(self) -> None:
        self._child = None
        if self in running_processes:
            running_processes.remove(self)


class ApiServer(Process):
    """`podwire apiserver` with a data directory of its own; can be killed and started again at the same address."""

    def __init__(self, directory: Path, *options: str, store: str = "sqlite://") -> None:
        super().__init__(f"podwire apiserver {directory.name}", directory.with_name(f"{directory.name}.log"))
        self.data_dir = directory
        self.kubeconfig = directory / "kubeconfig"
        self._options = (*options, "--store", store)
        self._port = 0

    def start(self, **env: str) -> float:
        """Start, wait until it is ready; how many seconds that took."""
        self.kubeconfig.unlink(missing_ok=True)
        begun = time.monotonic()
        listen = f"127.0.0.1:{self._port}"
        self.run(PODWIRE, "apiserver", "--data-dir", self.data_dir, "--listen", listen, *self._options, env=env)
        eventually(self._ready_or_dead, START_SECONDS, interval=0.01, explain=self._kill)
        if not self.alive:
            pytest.fail(f"podwire apiserver did not start:\n{self._kill()}")
        self._port = urlsplit(self.access.server).port or 0
        return time.monotonic() - begun

    def stop(self) -> int:
        """Ask it to end; the exit code."""
        self.signal(signal.SIGTERM)
        return self.exit_code()

    def close(self) -> None:
        """Kill it; whatever the stories did, its log may not show that it failed inside."""
        self.kill()
        log = self.log.read_text() if self.log.exists() else ""
        assert "Traceback" not in log, log[-6000:]

    @property
    def access(self) -> Access:
        return credentials.load(self.kubeconfig)

    @property
    def url(self) -> str:
        return self.access.server

    @property
    def tls(self) -> ssl.SSLContext:
        """With the admin's certificate."""
        context = credentials.ssl_context(self.access)
        assert context is not None
        return context

    def rest(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """One request over a connection of its own; the answer must be a success."""
        status, answer = self.ask(method, path, body, **headers)
        assert status < 300, f"{method} {path}: {status} {answer}"
        return answer

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and decoded body of the answer."""
        address = urlsplit(self.url)
        connection = http.client.HTTPSConnection(str(address.hostname), address.port, context=self.tls, timeout=30)
        try:
            data = None if body is None else json.dumps(body)
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, data, {"Content-Type": "application/json", **named})
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text
        finally:
            connection.close()

    def _kill(self) -> str:
        """Kills a server that did not start; returns the end of its log."""
        self.kill()
        return self.log.read_text()[-4000:]

    def _ready_or_dead(self) -> bool:
        return not self.alive or self._ready()

    def _ready(self) -> bool:
        try:
            return self.kubeconfig.exists() and self.ask("GET", "/readyz") == (200, "ok")
        except OSError:
            return False


class Etcd(Process):
    """A private etcd."""

    def __init__(self, directory: Path) -> None:
        super().__init__("etcd", directory.with_name(f"{directory.name}.log"))
        self._directory = directory
        self.address = f"127.0.0.1:{free_port()}"

    def start(self) -> None:
        binary = shutil.which("etcd") or shutil.which("etcd", path=str(DEBIAN.parent))
        assert binary, "etcd is not here; run scripts/setup"
        client, peer = f"http://{self.address}", f"http://127.0.0.1:{free_port()}"
        words = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        words += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        self.run(binary, "--data-dir", self._directory, *words)
        eventually(self._healthy)

    def url(self) -> str:
        """A store of its own in this etcd."""
        return f"etcd://{self.address}?prefix=/{uuid.uuid4().hex}"

    def _healthy(self) -> bool:
        if not self.alive:
            pytest.fail(f"etcd ended: {self.log.read_text()}")
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except OSError:
            return False


StartServer = Callable[..., ApiServer]


class Kubectl:
    """One kubectl program, with a home of its own, in one namespace."""

    def __init__(self, program: Path, home: Path, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self._command = [str(program), "--namespace", namespace]
        self._env = {"HOME": str(home), "KUBECONFIG": str(kubeconfig), "PATH": os.environ["PATH"], "TZ": "UTC"}
        self.version = version_of(program)

    def __call__(self, words: str, *more: str, given: str = "", **env: str) -> str:
        """Output of the command; it must succeed. `given` is its input, and `-f -` reads that."""
        ran = self.run(words, *more, given=given, **env)
        assert ran.returncode == 0, f"kubectl {words}: exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def refused(self, words: str, *more: str, given: str = "", **env: str) -> str:
        """Error output of the command; it must fail."""
        ran = self.run(words, *more, given=given, **env)
        assert ran.returncode != 0, f"kubectl {words} did not fail\n{ran.stdout}\n{ran.stderr}"
        return ran.stderr

    def run(self, words: str, *more: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *shlex.split(words), *more],
            input=given,
            capture_output=True,
            text=True,
            env={**self._env, **env},
            timeout=60,
            check=False,
        )

    def together(self, *commands: str) -> list[str]:
        """Several that do not depend on each other, at once; what each prints."""
        with ThreadPoolExecutor(4) as threads:
            return list(threads.map(self, commands))

    def json(self, words: str) -> Any:
        return json.loads(self(f"{words} -o json"))

    @contextmanager
    def background(self, words: str) -> Iterator["Lines"]:
        """One that goes on until the end of the block, such as a watch; its lines as they come."""
        child = subprocess.Popen(
            [*self._command, *shlex.split(words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._env,
        )
        with child:
            try:
                yield Lines(child)
            finally:
                child.kill()


class Lines:
    """The lines that a running program prints."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        assert child.stdout is not None
        self._queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._seen: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(child.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._queue.put(line.rstrip("\n"))

    def until(self, *parts: str) -> str:
        """The next line that contains all these parts."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._seen.append(self._queue.get(timeout=left))
                if all(part in self._seen[-1] for part in parts):
                    return self._seen[-1]
        pytest.fail(f"no line with {parts} among {self._seen}")


@functools.cache
def version_of(program: Path) -> tuple[int, int]:
    done = subprocess.run([program, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    version = json.loads(done.stdout)["clientVersion"]
    return int(version["major"]), int(version["minor"].rstrip("+"))


def kubectls() -> dict[str, Path]:
    """Every kubectl of this machine by a name for it: Debian's 1.20, those of the cloud SDK, the one on PATH."""
    found = {"1.20": DEBIAN}
    found |= {path.name.removeprefix("kubectl."): path for path in sorted(CLOUD_SDK.glob("kubectl.1.*"))}
    on_path = shutil.which("kubectl")
    if on_path and not (DEBIAN.exists() and DEBIAN.samefile(on_path)):
        found["path"] = Path(on_path)
    return found
