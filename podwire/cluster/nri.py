"""The NRI host of a runtime below a prefix: standard paths, the operator's file, and the trace."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podwire import __version__
from podwire.cluster import tracing
from podwire.nri.adaptation import Adaptation, Settings
from podwire.nri.adaptation.configuration import load
from podwire.protocols.settings import BadConfig
from podwire.runtime.containers.bundles import Bundles
from podwire.runtime.cri.runtime_service import NAME
from podwire.runtime.nri import ContainerUpdater, NriHooks
from podwire.runtime.sandboxes.sandbox import Sandbox
from podwire.trace.participants import RUNTIME

FILE = "etc/podwire/nri.yaml"
"""The operator's configuration, below the prefix; optional."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Paths of NRI; those that are None follow from the prefix."""

    disable: bool = False
    config: Path | None = None
    socket: Path | None = None


@dataclass(frozen=True, slots=True)
class Nri:
    """An NRI host, its hooks in the runtime, and the updater, which gets the containers when they are recovered."""

    host: Adaptation
    hooks: NriHooks
    updater: ContainerUpdater


def settings(options: Options, prefix: Path) -> Settings:
    """Returns the operator's configuration over the standard paths. Raises BadConfig, OSError."""
    standard = Settings(
        disable=options.disable,
        socket=options.socket or prefix / "run/nri/nri.sock",
        plugin_path=prefix / "opt/nri/plugins",
        plugin_config_path=prefix / "etc/nri/conf.d",
    )
    if options.disable:
        return standard
    file = options.config or prefix / FILE
    if options.config is None and not file.exists():
        return standard
    try:
        return load(file, standard)
    except BadConfig as error:
        raise BadConfig("", f"{file}: {error}") from error


def build(settings: Settings, bundles: Bundles, may_work: Callable[[Sandbox], None]) -> Nri:
    """Builds everything; nothing runs yet."""
    updater = ContainerUpdater(bundles.spec)
    host = Adaptation(settings, updater, runtime_name=NAME, runtime_version=__version__, tap=tracing.tap(RUNTIME))
    hooks = NriHooks(
        host,
        spec_of=bundles.spec,
        oom_score=bundles.host.oom_score_adj,
        cdi=bundles.devices.resolve,
        on_may_start=may_work,
    )
    return Nri(host, hooks, updater)
