"""Builds an image step by step: each that changes files is mounted over those before it, done, and packed.

1. The Containerfile is parsed and planned as a whole; nothing is done for one that is wrong.
2. A step that an image of the store went through before takes that image's layer (`cache.py`).
3. The image is committed like an import. After a failed step, what was done before it is kept without a name, for the
   next attempt.

The caller has a mount namespace of its own: mounts of a build that is killed end with it.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.overlay import mount_overlay
from podwire.linux.fs.paths import open_in_root
from podwire.protocols.containerfile import (
    SCRATCH,
    BadContainerfile,
    Copy,
    MakeDirectory,
    Plan,
    Platform,
    Run,
    Setting,
    parse,
    plan_build,
    source_image,
)
from podwire.runtime.builder.cache import Cache, step_key
from podwire.runtime.builder.context import Context, Source
from podwire.runtime.builder.copying import Attributes, copy_sources, make_directory
from podwire.runtime.builder.errors import BuildFailed, StepFailed
from podwire.runtime.builder.image_files import BuiltLayer, History, ImageFiles, base_of, write_archive
from podwire.runtime.builder.pack import pack_layer
from podwire.runtime.builder.sandbox import BuildSandbox, Command
from podwire.runtime.images import Image, ImageError, Images, platforms, references
from podwire.runtime.images.directories import is_opaque
from podwire.runtime.images.documents import chain_ids
from podwire.runtime.images.staging import translate_full_disk
from podwire.runtime.images.streams import compression
from podwire.runtime.spec.users import LAST_ID, Accounts

ACCOUNTS_BYTES = 1 << 20
"""Bytes of an image's passwd or group that are read."""
_TAR_MAGIC = 257, b"ustar"
_ROOT_MODE = 0o755

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A build, as on the command line. `file` is the Containerfile's name in errors."""

    text: str
    file: str
    context: Context
    names: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    platform: Platform | None = None
    """Another one than this machine's: only an archive is written."""
    archive: Path | None = None
    network: str = "host"
    cached: bool = True
    time: int = 0
    """The time of everything that is built, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Builder:
    images: Images
    sandbox: Callable[[], BuildSandbox]
    """Returns the sandbox for RUN. Raises StepFailed when commands cannot be run here."""
    report: Report
    mounts: KernelMounts = field(default_factory=KernelMounts)

    def build(self, request: BuildRequest) -> Image | None:
        """Returns the image; None for one of another platform. Raises BuildFailed, ImageError."""
        names = tuple(str(references.parse(name)) for name in request.names)
        if wrong := next((name for name in names if "@" in name), ""):
            raise BuildFailed(f"{wrong}: the name of an image has a tag; its digest follows from its content")
        machine = Platform("linux", self.images.machine.architecture)
        platform = request.platform or machine
        is_ours = self.images.machine.rank(platforms.Platform(*_fields(platform))) is not None
        if not is_ours and request.archive is None:
            raise BuildFailed(f"an image for {platform} cannot be stored on {machine}; write an archive of it")
        with translate_full_disk(), self.images.stage() as stage:
            try:
                base, plan = self._planned(request, platform, is_ours)
            except BadContainerfile as error:
                raise BuildFailed(f"{request.file}:{error}") from error
            for name in plan.unused:
                self.report(f"warning: no ARG asks for the argument {name}")
            build = _Build(self, request, stage, base, platform, is_ours)
            try:
                build.do(plan)
            except Exception:
                if is_ours and build.has_new_layers:
                    build.commit({}, ())
                    self.report("the steps before the failed one are kept for the next build")
                raise
            if request.archive is not None:
                write_archive(request.archive, build.finished(plan.settings), names, stage)
            return build.commit(plan.settings, names) if is_ours else None

    def _planned(self, request: BuildRequest, platform: Platform, is_ours: bool) -> tuple[ImageFiles, Plan]:
        instructions = parse(request.text)
        wanted = source_image(instructions, request.arguments, platform)
        line = next(instruction.line for instruction in instructions if instruction.name == "FROM")
        base = ImageFiles()
        if wanted != SCRATCH:
            if not is_ours:
                raise BadContainerfile(line, f"FROM {wanted}: only scratch is there for {platform}")
            try:
                image = self.images.status(wanted)
            except ImageError as error:
                raise BadContainerfile(line, f"FROM: {error}") from error
            if image is None:
                raise BadContainerfile(line, f"FROM: image {wanted!r} is missing here; pull or import it first")
            base = base_of(self.images, image)
            if base.settings.get("OnBuild"):
                raise BadContainerfile(line, f"FROM: {wanted!r} has ONBUILD instructions, which are not supported")
        plan = plan_build(instructions, base.settings, request.arguments, platform)
        layers = len(base.layers) + sum(not isinstance(step, Setting) for step in plan.steps)
        if layers > self.images.limits.layers:
            raise BadContainerfile(
                line, f"the image would have {layers} layers; at most {self.images.limits.layers} are possible"
            )
        if not is_ours and (run := next((step for step in plan.steps if isinstance(step, Run)), None)):
            raise BadContainerfile(run.line, f"RUN: commands for {platform} do not run on {self.images.machine}")
        return base, plan


@dataclass(slots=True)
class _Build:
    """The progress of one build."""

    builder: Builder
    request: BuildRequest
    stage: Path
    base: ImageFiles
    platform: Platform
    is_ours: bool
    _layers: list[BuiltLayer] = field(default_factory=list)
    _history: list[History] = field(default_factory=list)
    _lowers: list[Path] = field(default_factory=list)
    """The highest first."""

    @property
    def has_new_layers(self) -> bool:
        return any(layer.file is not None for layer in self._layers)

    def do(self, plan: Plan) -> None:
        builder, request = self.builder, self.request
        self._keep(self.base.chains)
        cache = Cache.of(builder.images) if request.cached and self.is_ours else Cache({})
        total = len(plan.steps)
        key = self.base.chains[-1] if self.base.chains else SCRATCH
        for number, step in enumerate(plan.steps, 1):
            builder.report(f"step {number} of {total}: {step.text}")
            if isinstance(step, Setting):
                self._history.append(History(step.text))
                continue
            try:
                sources = self._sources(step) if isinstance(step, Copy) else []
                key = step_key(key, step, request.context.digest(sources) if sources else "", request.network)
                layer = self._cached(cache, key) or self._done(step, sources, number)
            except (StepFailed, LinuxError) as error:
                raise BuildFailed(f"{request.file}:{step.line}: {step.text.split()[0]}: {error}") from error
            self._layers.append(layer)
            self._lowers.insert(0, layer.directory)
            self._history.append(History(step.text, key))

    def _keep(self, chains: Sequence[str]) -> None:
        """Keeps layers of the store, and mounts later steps over them."""
        directories = self.builder.images.keep_layers(self.stage, chains)
        self.base = replace(self.base, directories=tuple(directories))
        for directory in reversed(directories):
            self._lowers.append(directory)
            if is_opaque(directory):  # overlayfs merges roots even if one is opaque
                break

    def _sources(self, step: Copy) -> list[Source]:
        sources = [found for source in step.sources for found in self.request.context.find(source)]
        if len(sources) > 1 and not step.into_directory:
            raise StepFailed("with several sources the destination must be a directory and end with /")
        for source in sources if step.unpacks else ():
            if not source.is_directory and self._is_packed(source):
                raise StepFailed(f"{source.path}: unpacking is not supported; COPY the file, and RUN tar")
        return sources

    def _is_packed(self, source: Source) -> bool:
        with os.fdopen(self.request.context.open(source.entries[0].path), "rb") as file:
            head = file.read(512)
        at, magic = _TAR_MAGIC
        return bool(compression(head)) or head[at : at + len(magic)] == magic

    def _cached(self, cache: Cache, key: str) -> BuiltLayer | None:
        """Returns the layer of a step that was done before, if the store still has it in this place."""
        descriptor = cache.layers.get(key)
        if descriptor is None:
            return None
        diff_ids = [*self.base.diff_ids, *(layer.diff_id for layer in self._layers), descriptor.diff_id]
        if any(layer.file is not None for layer in self._layers):
            return None
        try:
            directories = self.builder.images.keep_layers(self.stage, chain_ids(diff_ids))
        except ImageError:
            return None
        self.builder.report("  unchanged: taken from an earlier build")
        return BuiltLayer(descriptor.diff_id, descriptor.size, directories[-1])

    def _done(self, step: MakeDirectory | Copy | Run, sources: Sequence[Source], number: int) -> BuiltLayer:
        home = self.stage / f"step-{number}"
        upper, work, root = (home / name for name in ("upper", "work", "root"))
        for directory in (home, upper, work, root):
            directory.mkdir(mode=0o700)
        lowers = self._lowers or [_empty(self.stage)]
        model = self._lowers[0].stat() if self._lowers else None
        os.chown(upper, *((model.st_uid, model.st_gid) if model else (0, 0)))
        upper.chmod(stat.S_IMODE(model.st_mode) if model else _ROOT_MODE)
        before = upper.stat()
        with self._mounted(root, lowers, upper, work) as mounted:
            match step:
                case MakeDirectory():
                    os.close(make_directory(mounted, step.path, Attributes()))
                case Copy():
                    attributes = _attributes(step, mounted)
                    copy_sources(
                        self.request.context, sources, mounted, step.destination, step.into_directory, attributes
                    )
                case Run():
                    self._run(step, root, mounted, home / "bundle")
        after = upper.stat()
        changed = (before.st_mode, before.st_uid, before.st_gid) != (after.st_mode, after.st_uid, after.st_gid)
        tar = home / "layer.tar"
        packed = pack_layer(upper, self._lowers, tar, self.request.time, root=changed or not self._lowers)
        return BuiltLayer(packed.diff_id, packed.size, upper, tar)

    @contextmanager
    def _mounted(self, root: Path, lowers: Sequence[Path], upper: Path, work: Path) -> Iterator[int]:
        with ExitStack() as stack:
            mount_overlay(root, lowers, upper=upper, work=work)
            stack.callback(self.builder.mounts.unmount, root, lazily=True)
            opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, opened)
            yield opened

    def _run(self, step: Run, root: Path, mounted: int, bundle: Path) -> None:
        command = Command(
            arguments=step.arguments,
            environment=step.environment,
            working_dir=step.working_dir,
            user=step.user,
            network=self.request.network,
        )
        report = self.builder.report
        code = self.builder.sandbox().run(root, bundle, command, _accounts(mounted), lambda line: report(f"  {line}"))
        if code:
            raise StepFailed(f"ended with exit code {code}")

    def finished(self, settings: Mapping[str, Any]) -> ImageFiles:
        """Returns the files of the image so far."""
        return self.base.extended(self._layers, self._history, settings, self.platform, self.request.time)

    def commit(self, settings: Mapping[str, Any], names: tuple[str, ...]) -> Image:
        image = self.finished(settings)
        files = {layer.diff_id: layer.file for layer in self._layers if layer.file is not None}
        return self.builder.images.import_built(_Layers(files), image.archive_image(names))


@dataclass(frozen=True, slots=True)
class _Layers:
    """New layers as an archive, by their diff ids."""

    files: Mapping[str, Path]

    def has(self, name: str) -> bool:
        return name in self.files

    def size(self, name: str) -> int:
        return self._path(name).stat().st_size

    def open(self, name: str) -> BinaryIO:
        return self._path(name).open("rb", buffering=0)

    def _path(self, name: str) -> Path:
        path = self.files.get(name)
        if path is None:
            raise BuildFailed(f"the layer {name} of the image of FROM was removed during the build")
        return path


def _fields(platform: Platform) -> tuple[str, str, str]:
    return platform.os, platform.architecture, platform.variant


def _empty(stage: Path) -> Path:
    """Returns an empty directory: overlayfs needs something below."""
    (stage / "empty").mkdir(mode=_ROOT_MODE, exist_ok=True)
    return stage / "empty"


def _attributes(step: Copy, root: int) -> Attributes:
    """Returns the owner of copied files; names are those of the image. A number alone is the group, too."""
    if not step.owner:
        return Attributes(mode=step.mode)
    user, colon, group = step.owner.partition(":")
    accounts = _accounts(root)
    known = accounts.user(user)
    if user.isdecimal():
        uid, gid = int(user), int(user)
    elif known is not None:
        uid, gid = known
    else:
        raise StepFailed(f"--chown: the image has no user {user!r}")
    if colon and group:
        named = accounts.gid(group)
        if not group.isdecimal() and named is None:
            raise StepFailed(f"--chown: the image has no group {group!r}")
        gid = int(group) if group.isdecimal() else named or 0
    if max(uid, gid) > LAST_ID:
        raise StepFailed(f"--chown: {step.owner!r} is not within 0 and {LAST_ID}")
    return Attributes(uid, gid, step.mode)


def _accounts(root: int) -> Accounts:
    return Accounts(_read(root, "etc/passwd"), _read(root, "etc/group"))


def _read(root: int, path: str) -> str:
    try:
        descriptor = open_in_root(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except LinuxError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return file.read(ACCOUNTS_BYTES).decode("utf-8", "replace")
