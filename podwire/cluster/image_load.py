"""Finds an image in another engine of this machine (Docker, podman or containerd), and has it written to an archive."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from podwire.linux.errors import LinuxError
from podwire.linux.proc import processes
from podwire.runtime.images.errors import ImageError
from podwire.runtime.images.references import parse

ENGINES = ("docker", "podman", "containerd")


class NotLoaded(ImageError):
    """No engine has the image; says what each of them answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """Seconds."""

    ask: float = 30.0
    write: float = 1800.0


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines to ask, in this order."""

    names: Sequence[str] = ENGINES
    limits: LoadLimits = field(default_factory=LoadLimits)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def export(self, name: str, file: Path) -> str:
        """Writes an image to a new file. Returns the engine that had it. Raises NotLoaded."""
        answers = []
        for engine in self.names:
            try:
                _EXPORTS[engine](self, name, file)
            except NotLoaded as error:
                answers.append(f"{engine}: {error}")
                file.unlink(missing_ok=True)
            else:
                return engine
        raise NotLoaded(f"image {name!r} is in none of {', '.join(self.names)} ({'; '.join(answers)})")

    def docker(self, name: str, file: Path) -> None:
        self._run(self.limits.write, "docker", "save", "-o", str(file), name)

    def podman(self, name: str, file: Path) -> None:
        self._run(self.limits.write, "podman", "save", "-o", str(file), name)

    def containerd(self, name: str, file: Path) -> None:
        """Looks in all namespaces: Kubernetes, nerdctl and Docker have one each. Names are whole there."""
        whole = str(parse(name))
        namespaces = self._run(self.limits.ask, "ctr", "namespaces", "list", "-q").split()
        for namespace in namespaces:
            images = self._run(self.limits.ask, "ctr", "-n", namespace, "images", "list", "-q").splitlines()
            if whole in images:
                self._run(self.limits.write, "ctr", "-n", namespace, "images", "export", str(file), whole)
                return
        raise NotLoaded(f"has no {whole} in its namespaces {', '.join(namespaces) or '(none)'}")

    def _run(self, seconds: float, program: str, *words: str) -> str:
        path = which(program, path=self.environment.get("PATH"))
        if path is None:
            raise NotLoaded(f"{program} is not installed")
        try:
            done = processes.run([path, *words], env=self.environment, deadline=seconds, kill_group=True)
        except LinuxError as error:
            raise NotLoaded(str(error)) from error
        if done.code:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise NotLoaded(said[-1][:300] if said else f"{program} ended with exit code {done.code}")
        return done.stdout.decode("utf-8", "replace")


_EXPORTS: Mapping[str, Callable[[Engines, str, Path], None]] = {
    "docker": Engines.docker,
    "podman": Engines.podman,
    "containerd": Engines.containerd,
}
