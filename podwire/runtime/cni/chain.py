"""The verbs of CNI, asked of all plugins of a network: who is asked in which order, and what each is told.

| verb | order | told | a plugin that fails |
|---|---|---|---|
| ADD | as listed | the result of the one before | ends it, and what ran is asked to DEL |
| DEL | reverse | the last result of ADD | does not keep the others from giving back |
| CHECK | as listed | the last result of ADD | ends it |
| GC | as listed | which attachments stay | does not keep the others from tidying up |
| STATUS | as listed | | ends it |

Synchronous: a call takes a thread for as long as plugins run.
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
from podwire.runtime.cni.arguments import of_plugin
from podwire.runtime.cni.cache import CachedAttachment
from podwire.runtime.cni.plugins import PluginFailed, Plugins

ADDED = declare("runtime.cni-added", "a plugin has answered ADD, and that is not remembered yet")
DELETED = declare("runtime.cni-deleted", "a plugin has answered DEL, the attachment is still remembered")


class AddFailed(Exception):
    """A plugin failed ADD."""

    def __init__(self, error: PluginFailed, ran: Sequence[Object]) -> None:
        super().__init__(str(error))
        self.error = error
        self.ran = tuple(ran)
        """Plugins that may have done something, and so are to be asked to DEL."""


class Chain:
    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def add(self, attached: CachedAttachment) -> Object:
        """The last plugin's result; AddFailed."""
        result: Object | None = None
        for at, plugin in enumerate(attached.plugins):
            try:
                result = self._added(attached, plugin, result)
            except PluginFailed as error:
                raise AddFailed(error, attached.plugins[: at + 1 if error.ran else at]) from error
            failpoint(ADDED)
        return result or {}

    def _added(self, attached: CachedAttachment, plugin: Object, previous: Object | None) -> Object:
        network = attached.network()
        sent = request(network, plugin, previous, of_plugin(attached.capabilities, plugin, attached.plugins))
        printed = self._plugins.call(plugin["type"], self._invocation("ADD", attached, attached.netns), sent)
        try:
            result = results.decode(printed, network.version)
            if printed is not None and printed.get("cniVersion") == network.version:
                return printed  # as it is, with what only the plugins understand
            return results.encode(result, network.version)
        except CniError as error:
            raise PluginFailed(plugin["type"], "ADD", f"printed what is no result: {error}") from error

    def delete(self, attached: CachedAttachment, plugins: Sequence[Object], netns: str) -> list[PluginFailed]:
        """Ask each for DEL, the last first, whatever the others say; who failed."""
        network = attached.network()
        previous = attached.result if at_least(network.version, PREV_RESULT_SINCE) else None
        failed = []
        for plugin in reversed(plugins):
            sent = request(network, plugin, previous, of_plugin(attached.capabilities, plugin, attached.plugins))
            try:
                self._plugins.call(plugin["type"], self._invocation("DEL", attached, netns), sent)
            except PluginFailed as error:
                if error.code != Code.UNKNOWN_CONTAINER:
                    failed.append(error)
            failpoint(DELETED)
        return failed

    def check(self, attached: CachedAttachment) -> None:
        """Whether all is as ADD left it; PluginFailed, or CniError for what cannot be checked."""
        network = attached.network()
        if attached.disable_check:
            return
        if not at_least(network.version, VERBS["CHECK"].since):
            told = f"CHECK is not in cniVersion {network.version}, which network {network.name} has"
            raise CniError(Code.INCOMPATIBLE_VERSION, told)
        if attached.result is None:
            raise CniError(Code.BAD_CONFIG, f"{attached.id} {attached.ifname} was never wholly attached")
        for plugin in attached.plugins:
            sent = request(network, plugin, attached.result, of_plugin(attached.capabilities, plugin, attached.plugins))
            self._plugins.call(plugin["type"], self._invocation("CHECK", attached, attached.netns), sent)

    def gc(self, network: NetworkList, valid_attachments: Iterable[tuple[str, str]]) -> list[PluginFailed]:
        """Have everything given back that belongs to none of these ids and interfaces; who failed."""
        if not collects(network):
            return []
        stay = [{"containerID": id_, "ifname": ifname} for id_, ifname in sorted(valid_attachments)]
        failed = []
        for plugin in network.plugins:
            sent = request(network, plugin, None, {}) | {VALID_ATTACHMENTS: stay}
            try:
                self._plugins.call(plugin["type"], Invocation("GC", path=self._plugins.path), sent)
            except PluginFailed as error:
                failed.append(error)
        return failed

    def status(self, network: NetworkList) -> None:
        """Whether the network takes pods; PluginFailed, and nothing for versions that cannot tell."""
        if not tells_status(network):
            return
        for plugin in network.plugins:
            sent = request(network, plugin, None, {})
            self._plugins.call(plugin["type"], Invocation("STATUS", path=self._plugins.path), sent)

    def versions(self, network: NetworkList) -> dict[str, list[str]]:
        """What each plugin supports, by type; one that was made before VERSION supports the first alone."""
        return {each["type"]: self._versions(each["type"], network.version) for each in network.plugins}

    def _versions(self, kind: str, version: str) -> list[str]:
        try:
            told = self._plugins.call(kind, Invocation("VERSION", path=self._plugins.path), {"cniVersion": version})
        except PluginFailed as error:
            if "unknown CNI_COMMAND" in str(error):
                return [versions.OLDEST]
            raise
        supported = (told or {}).get("supportedVersions")
        if not isinstance(supported, list):
            raise PluginFailed(kind, "VERSION", "printed no supportedVersions")
        return [str(each) for each in supported]

    def _invocation(self, verb: str, attached: CachedAttachment, netns: str) -> Invocation:
        return Invocation(verb, attached.id, netns, attached.ifname, attached.args, self._plugins.path)


def is_checked(attached: CachedAttachment) -> bool:
    """Whether CHECK has anything to say of it."""
    since = VERBS["CHECK"].since
    wanted = not attached.disable_check and at_least(attached.version, since)
    return wanted and attached.result is not None and not attached.leaving


def collects(network: NetworkList) -> bool:
    return at_least(network.version, VERBS["GC"].since) and not network.disable_gc


def tells_status(network: NetworkList) -> bool:
    return at_least(network.version, VERBS["STATUS"].since)


def verified_netns(netns: str, inode: int) -> str:
    """The path of a namespace if it is the one that was attached; else none, so that no plugin enters another's."""
    try:
        return netns if netns and inode in (0, identity(netns)) else ""
    except linux.LinuxError:
        return ""
