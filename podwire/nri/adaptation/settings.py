"""Settings of the adaptation."""

from dataclasses import dataclass, field
from pathlib import Path

from podwire.protocols.nri.names import PluginId


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """Settings of one plugin, by its name or NN-name."""

    timeout: float | None = None
    """Seconds that each of its hooks may take; None: `request_timeout`."""
    concurrent: bool = False
    """Whether it handles concurrent requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorSettings:
    """Adjustments that the default validator rejects; off unless enabled. The names are containerd's."""

    enable: bool = False
    reject_oci_hook_adjustment: bool = False
    reject_runtime_default_seccomp_adjustment: bool = False
    reject_unconfined_seccomp_adjustment: bool = False
    reject_custom_seccomp_adjustment: bool = False
    reject_namespace_adjustment: bool = False
    reject_sysctl_adjustment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The defaults are containerd's where it has them."""

    disable: bool = False
    """Accepts no plugin and starts none."""
    socket: Path | None = None
    """The socket to which plugins connect; None accepts none."""
    plugin_path: Path | None = None
    """The directory of pre-installed plugins, named NN-NAME; None starts none."""
    plugin_config_path: Path | None = None
    """The directory of NN-NAME.conf and NAME.conf of pre-installed plugins."""
    plugin_config: str = ""
    """The configuration of plugins without such a file; empty in containerd."""
    state_change: bool = False
    """Speak as runtimes before NRI 0.12 do, so that a plugin can be tested against them."""
    registration_timeout: float = 5.0
    request_timeout: float = 2.0
    synchronize_timeout: float = 10.0
    slow_share: float = 0.8
    """The share of its timeout from which on a plugin's answer is worth a warning."""
    required_plugins: tuple[str, ...] = ()
    """Plugins, by name or NN-name, without which no pod starts that has a network namespace of its own."""
    tolerate_missing_plugins_annotation: str = ""
    """The annotation whose value `true` exempts a pod from required plugins."""
    grace: float = 10.0
    """Seconds that a pod waits for a required plugin that is being restarted."""
    first_restart: float = 0.5
    longest_restart: float = 10.0
    """Seconds before a required pre-installed plugin is started again."""
    plugins: dict[str, PluginSettings] = field(default_factory=dict)
    validator: ValidatorSettings = field(default_factory=ValidatorSettings)

    def of(self, plugin: PluginId) -> PluginSettings:
        return self.plugins.get(str(plugin)) or self.plugins.get(plugin.name) or PluginSettings()
