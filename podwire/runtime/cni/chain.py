"""The verbs of CNI for all plugins of a network: the order of the calls, and what each plugin gets.

| verb | order | input | a plugin that fails |
|---|---|---|---|
| ADD | as listed | prevResult: the result of the plugin before | ends it; the plugins that ran get DEL |
| DEL | reverse | prevResult: the last result of ADD | does not stop the DEL of the others |
| CHECK | as listed | prevResult: the last result of ADD | ends it |
| GC | as listed | cni.dev/valid-attachments | does not stop the GC of the others |
| STATUS | as listed | | ends it |

Synchronous: a call occupies a thread for as long as plugins run.
"""

from collections.abc import Iterable, Sequence

from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.proc.namespaces import identity
from podwire.protocols.cni import results, versions
from podwire.protocols.cni.config import PREV_RESULT_SINCE, VALID_ATTACHMENTS, NetworkList, request
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Object
from podwire.protocols.cni.verbs import VERBS, Invocation
from podwire.protocols.cni.versions import at_least
from podwire.runtime.cni.arguments import plugin_capability_args
from podwire.runtime.cni.cache import CachedAttachment
from podwire.runtime.cni.plugins import PluginFailed, Plugins

ADDED = declare("runtime.cni-added", "a plugin has answered ADD, and its result is not cached yet")
DELETED = declare("runtime.cni-deleted", "a plugin has answered DEL, and the attachment is still cached")


class AddFailed(Exception):
    """A plugin failed ADD."""

    def __init__(self, error: PluginFailed, ran: Sequence[Object]) -> None:
        super().__init__(str(error))
        self.error = error
        self.ran = tuple(ran)
        """Plugins that may have changed something, and so must get DEL."""


class Chain:
    """Calls the plugins of a network, one after the other."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def add(self, attachment: CachedAttachment) -> Object:
        """Returns the result of the last plugin. Raises AddFailed."""
        network, plugins = attachment.network(), attachment.plugins
        invocation = self._invocation("ADD", attachment, attachment.netns)
        result: Object | None = None
        for at, plugin in enumerate(plugins):
            config = request(network, plugin, result, plugin_capability_args(attachment.capabilities, plugin, plugins))
            try:
                output = self._plugins.call(plugin["type"], invocation, config)
                result = _result(plugin["type"], output, network.version)
            except PluginFailed as error:
                raise AddFailed(error, plugins[: at + 1 if error.ran else at]) from error
            failpoint(ADDED)
        return result or {}

    def undo_add(self, attachment: CachedAttachment, failed: AddFailed) -> list[PluginFailed]:
        """Calls DEL of the plugins that ran, when no process of their ADD is left. Returns the failures."""
        self._plugins.kill_failed_add(attachment.id, attachment.ifname)
        return self.delete(attachment, failed.ran, attachment.netns)

    def delete(self, attachment: CachedAttachment, plugins: Sequence[Object], netns: str) -> list[PluginFailed]:
        """Calls DEL of each plugin, the last first, whatever the others answer. Returns the failures."""
        network = attachment.network()
        previous = attachment.result if at_least(network.version, PREV_RESULT_SINCE) else None
        invocation = self._invocation("DEL", attachment, netns)
        failures = []
        for plugin in reversed(plugins):
            capabilities = plugin_capability_args(attachment.capabilities, plugin, attachment.plugins)
            try:
                self._plugins.call(plugin["type"], invocation, request(network, plugin, previous, capabilities))
            except PluginFailed as error:
                if error.code != Code.UNKNOWN_CONTAINER:
                    failures.append(error)
            failpoint(DELETED)
        return failures

    def check(self, attachment: CachedAttachment) -> None:
        """Checks that everything is as ADD left it. Raises PluginFailed, or CniError for what cannot be checked."""
        network = attachment.network()
        if attachment.disable_check:
            return
        if not at_least(network.version, VERBS["CHECK"].since):
            text = f"CHECK is not in cniVersion {network.version}, which network {network.name} has"
            raise CniError(Code.INCOMPATIBLE_VERSION, text)
        if attachment.result is None:
            raise CniError(Code.BAD_CONFIG, f"{attachment.id} {attachment.ifname} was never completely attached")
        invocation = self._invocation("CHECK", attachment, attachment.netns)
        for plugin in attachment.plugins:
            capabilities = plugin_capability_args(attachment.capabilities, plugin, attachment.plugins)
            self._plugins.call(plugin["type"], invocation, request(network, plugin, attachment.result, capabilities))

    def gc(self, network: NetworkList, valid: Iterable[tuple[str, str]]) -> list[PluginFailed]:
        """Has everything released that belongs to none of these ids and interfaces. Returns the failures."""
        if not supports_gc(network):
            return []
        attachments = [{"containerID": id_, "ifname": ifname} for id_, ifname in sorted(valid)]
        failures = []
        for plugin in network.plugins:
            config = request(network, plugin, None, {}) | {VALID_ATTACHMENTS: attachments}
            try:
                self._plugins.call(plugin["type"], Invocation("GC", path=self._plugins.path), config)
            except PluginFailed as error:
                failures.append(error)
        return failures

    def status(self, network: NetworkList) -> None:
        """Asks whether the network accepts pods. Raises PluginFailed; versions without STATUS always accept."""
        if not at_least(network.version, VERBS["STATUS"].since):
            return
        for plugin in network.plugins:
            config = request(network, plugin, None, {})
            self._plugins.call(plugin["type"], Invocation("STATUS", path=self._plugins.path), config)

    def versions(self, network: NetworkList) -> dict[str, list[str]]:
        """Returns the versions that each plugin supports, by type; a plugin older than VERSION supports the first."""
        return {plugin["type"]: self._versions(plugin["type"], network.version) for plugin in network.plugins}

    def _versions(self, kind: str, version: str) -> list[str]:
        try:
            output = self._plugins.call(kind, Invocation("VERSION", path=self._plugins.path), {"cniVersion": version})
        except PluginFailed as error:
            if "unknown CNI_COMMAND" in str(error):
                return [versions.OLDEST]
            raise
        supported = (output or {}).get("supportedVersions")
        if not isinstance(supported, list):
            raise PluginFailed(kind, "VERSION", "printed no supportedVersions")
        return [str(version) for version in supported]

    def _invocation(self, verb: str, attachment: CachedAttachment, netns: str) -> Invocation:
        return Invocation(verb, attachment.id, netns, attachment.ifname, attachment.args, self._plugins.path)


def _result(kind: str, output: Object | None, version: str) -> Object:
    """The result of ADD in the network's version; the plugin's own object, with unknown keys, where that fits.

    A plugin must answer in the version that it was asked in. Older ones answer in one of theirs, which is converted as
    libcni does; a version that nobody knows has a meaning that nobody knows. Raises PluginFailed.
    """
    try:
        if output is not None and output.get("cniVersion") == version:
            results.decode(output, version)
            return output
        if output is not None:
            answered = output.get("cniVersion") or version
            versions.parsed(answered)
            versions.checked(answered)
        return results.encode(results.decode(output, version), version)
    except CniError as error:
        wrong = CniError(error.code, f"printed an invalid result: {error.msg}", error.details)
        raise PluginFailed(kind, "ADD", wrong) from error


def is_checkable(attachment: CachedAttachment) -> bool:
    """Whether CHECK can be called for it."""
    supported = not attachment.disable_check and at_least(attachment.version, VERBS["CHECK"].since)
    return supported and attachment.result is not None and not attachment.leaving


def supports_gc(network: NetworkList) -> bool:
    return at_least(network.version, VERBS["GC"].since) and not network.disable_gc


def verified_netns(netns: str, inode: int) -> str:
    """Returns the path of a namespace if it is the one that was attached; else "", so that no other is entered."""
    try:
        return netns if netns and inode in (0, identity(netns)) else ""
    except linux.LinuxError:
        return ""
