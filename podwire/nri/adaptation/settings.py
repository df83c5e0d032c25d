"""What an operator decides about NRI."""

from dataclasses import dataclass, field
from pathlib import Path

from podwire.protocols.nri.names import PluginId


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """What is decided for one plugin, by its name or NN-name."""

    timeout: float | None = None
    """Seconds that each of its hooks may take; None is everybody's."""
    concurrent: bool = False
    """Whether it takes several requests at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorSettings:
    """What the built-in validator refuses; off unless enabled. The names are containerd's."""

    enable: bool = False
    reject_oci_hook_adjustment: bool = False
    reject_runtime_default_seccomp_adjustment: bool = False
    reject_unconfined_seccomp_adjustment: bool = False
    reject_custom_seccomp_adjustment: bool = False
    reject_namespace_adjustment: bool = False
    reject_sysctl_adjustment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a host behaves; the defaults are containerd's where it has them."""

    disable: bool = False
    """Lets no plugin in and starts none."""
    socket: Path | None = None
    """Where plugins connect; None lets none in."""
    plugin_path: Path | None = None
    """Where pre-installed plugins lie, named NN-NAME; None starts none."""
    plugin_config_path: Path | None = None
    """Where NN-NAME.conf or NAME.conf of pre-installed plugins lie."""
    plugin_config: str = ""
    """What Configure tells a plugin for which no file lies there; containerd tells it nothing."""
    state_change: bool = False
    """Speak as runtimes before NRI 0.12 do, so that a plugin can be tried with them."""
    registration_timeout: float = 5.0
    request_timeout: float = 2.0
    synchronize_timeout: float = 10.0
    required_plugins: tuple[str, ...] = ()
    """Plugins, by name or NN-name, without which no pod starts that has a network namespace of its own."""
    tolerate_missing_plugins_annotation: str = ""
    """The annotation that exempts a pod whose value for it is true."""
    grace: float = 10.0
    """Seconds that a pod waits for a required plugin that is being restarted."""
    plugins: dict[str, PluginSettings] = field(default_factory=dict)
    validator: ValidatorSettings = field(default_factory=ValidatorSettings)

    def of(self, plugin: PluginId) -> PluginSettings:
        return self.plugins.get(str(plugin)) or self.plugins.get(plugin.name) or PluginSettings()
