"""Configurations: the list that an administrator writes, the request that a plugin gets of it."""

from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any, NamedTuple

from podwire.protocols.cni import results, versions
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object, check_unique, loaded_object, taken, taken_list
from podwire.protocols.cni.verbs import Invocation, is_id, is_ifname

LONGEST_NAME = 170
"""Characters of a network's name: with a container id of 64 and an interface it makes the name of a file."""
LONGEST_FILE_NAME = 255
"""Bytes: names of network, container and interface, joined by two characters, are the name of a file."""
MOST_PLUGINS = 100
PREV_RESULT_SINCE = "0.4.0"
"""From this version on DEL and CHECK receive the final result of ADD, too."""
_LONGEST_PATH, _LONGEST_PART = 3500, 255
"""Bytes of a path, to which names of files are added, and of its parts."""


class NetworkList(NamedTuple):
    """A network: the plugins that make it, in the order of ADD."""

    name: str
    version: str
    plugins: tuple[Object, ...]
    disable_check: bool = False
    disable_gc: bool = False
    only_inlined: bool = False
    """Whether plugins come from this list alone, or from a folder with the network's name, too."""


def parse_list(data: bytes, where: str = "network configuration") -> NetworkList:
    """A `.conflist`. Plugins may be absent if a folder has them; see `with_plugins`."""
    raw = loaded_object(data, where)
    only_inlined = _flag(raw, "loadOnlyInlinedPlugins")
    if "plugins" not in raw and only_inlined:
        raise CniError(Code.BAD_CONFIG, "plugins: missing, and loadOnlyInlinedPlugins is set")
    plugins = tuple(
        _checked_plugin(plugin, f"plugins[{at}]") for at, plugin in enumerate(taken_list(raw, "plugins", dict))
    )
    if "plugins" in raw and not plugins:
        raise CniError(Code.BAD_CONFIG, "plugins: empty")
    offered: list[object] = [raw.get("cniVersion") or versions.OLDEST, *taken_list(raw, "cniVersions", str)]
    return NetworkList(
        name=_short(checked_name(raw.get("name"))),
        version=versions.newest(offered),
        plugins=plugins,
        disable_check=_flag(raw, "disableCheck"),
        disable_gc=_flag(raw, "disableGC"),
        only_inlined=only_inlined,
    )


def parse_single(data: bytes, where: str = "network configuration") -> NetworkList:
    """A `.conf` or `.json`: one plugin that is the whole network."""
    raw = loaded_object(data, where)
    if "plugins" in raw:
        raise CniError(Code.BAD_CONFIG, "plugins: a list of plugins belongs into a .conflist")
    plugin = _checked_plugin(raw, "")
    return NetworkList(
        _short(checked_name(raw.get("name"))), versions.newest([raw.get("cniVersion") or versions.OLDEST]), (plugin,)
    )


def parse_plugin(data: bytes, where: str) -> Object:
    """One plugin of a network's folder."""
    return _checked_plugin(loaded_object(data, where), where)


def with_plugins(network: NetworkList, more: tuple[Object, ...]) -> NetworkList:
    """The list with what its folder adds after the inlined ones; a network without any plugin is invalid."""
    plugins = network.plugins + (() if network.only_inlined else more)
    if not plugins:
        raise CniError(Code.BAD_CONFIG, "plugins: missing, and no folder has any")
    if len(plugins) > MOST_PLUGINS:
        raise CniError(Code.BAD_CONFIG, f"plugins: {len(plugins)} are more than {MOST_PLUGINS}")
    return network._replace(plugins=plugins)


def checked_name(name: object) -> str:
    if name is not None and not isinstance(name, str):
        raise CniError(Code.UNDECODABLE, f"name: {name!r} is not a string")
    if not is_id(name):
        rule = "must be letters, digits, '_', '.' and '-', and begin with one of the first"
        raise CniError(Code.BAD_CONFIG, f"name: {name!r} {rule}" if name else "name: missing")
    return str(name)


def _short(name: str) -> str:
    """A network's name that can be part of the name of a file. Only for new networks: DEL takes any."""
    if len(name) > LONGEST_NAME:
        raise CniError(Code.BAD_CONFIG, f"name: {name[:20]}… is longer than {LONGEST_NAME} characters")
    return name


def check_paths(config: "PluginConfig", request: Invocation) -> None:
    """Raises CniError for names that cannot be those of files. Not for DEL: an older podwire may have accepted them."""
    _short(config.name)
    longest = LONGEST_FILE_NAME - len(config.name) - len(request.ifname) - 2
    if len(request.container_id) > longest:
        given = f"{len(request.container_id)} characters"
        raise CniError(Code.BAD_ENVIRONMENT, f"CNI_CONTAINERID: {given}, the limit on this network is {longest}")
    ipam = taken(config.raw, "ipam", dict, {})
    for where, raw in (("", config.raw), ("ipam.", ipam)):
        path = taken(raw, "dataDir", str, "", where)
        if len(path.encode()) > _LONGEST_PATH:
            raise CniError(Code.BAD_CONFIG, f"{where}dataDir: {len(path)} characters, the limit is {_LONGEST_PATH}")
        if any(len(part.encode()) > _LONGEST_PART for part in path.split("/")):
            raise CniError(Code.BAD_CONFIG, f"{where}dataDir: a part has more than {_LONGEST_PART} bytes")
        if "\0" in path:
            raise CniError(Code.BAD_CONFIG, f"{where}dataDir: {path!r} must not contain a null character")


def checked_type(kind: object, where: str) -> str:
    """The name of a plugin's program: a bare name, so that it is found in CNI_PATH and nowhere else."""
    if not isinstance(kind, str) or not kind:
        raise CniError(
            Code.BAD_CONFIG, f"{where}type: missing" if not kind else f"{where}type: {kind!r} is not a string"
        )
    if "/" in kind or kind in (".", "..") or "\0" in kind:
        raise CniError(Code.BAD_CONFIG, f"{where}type: {kind!r} must be a bare name")
    return kind


def _checked_plugin(plugin: Object, where: str) -> Object:
    dot = f"{where}." if where else ""
    checked_type(plugin.get("type"), dot)
    for enabled in taken(plugin, "capabilities", dict, {}, dot).values():
        if not isinstance(enabled, bool):
            raise CniError(Code.UNDECODABLE, f"{dot}capabilities: {enabled!r} is neither true nor false")
    return plugin


def _flag(raw: Object, key: str) -> bool:
    """A boolean that may be written as a string."""
    value = raw.get(key, False)
    if value in ("true", "false"):
        return bool(value == "true")
    return taken(raw, key, bool, False)


def request(
    network: NetworkList, plugin: Object, prev_result: Object | None, capabilities: Mapping[str, Any]
) -> Object:
    """Returns the configuration for one plugin of a network: its own, plus the runtime's values.

    Of the capabilities it gets those that it declares and the runtime has a value for.
    """
    declared: Object = plugin.get("capabilities") or {}
    values = {key: capabilities[key] for key, wanted in declared.items() if wanted and key in capabilities}
    sent = {key: value for key, value in plugin.items() if key not in ("capabilities", "prevResult", "runtimeConfig")}
    sent |= {"name": network.name, "cniVersion": network.version}
    sent |= {"runtimeConfig": values} if values else {}
    return sent | ({} if prev_result is None else {"prevResult": prev_result})


class PluginConfig(NamedTuple):
    """The configuration that a plugin reads from stdin."""

    raw: Object
    """Whole, to be passed on to a delegate."""
    name: str
    version: str
    runtime: Object
    """`runtimeConfig` with its keys in lower case: some runtimes send them in their language's own spelling."""
    args: Object
    """`args.cni`."""

    def previous(self) -> Result | None:
        """`prevResult`, read only when it is asked for: DEL must not fail for one that is broken."""
        encoded = self.raw.get("prevResult")
        try:
            return None if encoded is None else results.decode(encoded, self.version, "prevResult")
        except CniError as error:
            raise CniError(error.code, f"could not parse prevResult: {error.msg}", error.details) from error


def plugin_config(data: bytes, supported: tuple[str, ...] = versions.KNOWN) -> PluginConfig:
    try:
        raw = loaded_object(data, "standard input")
    except CniError as error:
        cause = error.__cause__
        ended = isinstance(cause, JSONDecodeError) and cause.pos >= len(cause.doc.rstrip())
        words = "unexpected end of JSON input" if ended else error.msg
        raise CniError(error.code, f"error unmarshall network config: {words}", str(error)) from error
    if b'"sysctl"' in data:  # a key that is given twice would silently have one of two values
        check_unique(data, "sysctl")
    version = versions.checked(raw.get("cniVersion"), supported)
    name = _own_name(raw.get("name"))
    return PluginConfig(
        raw=raw,
        name=name,
        version=version,
        runtime=lowered(taken(raw, "runtimeConfig", dict, {})),
        args=taken(taken(raw, "args", dict, {}), "cni", dict, {}, "args."),
    )


def _own_name(name: object) -> str:
    """Returns the network's name; errors are in the words of the reference plugins."""
    try:
        return checked_name(name)
    except CniError as error:
        words = "invalid characters found in network name" if name else "missing network name"
        words = words if error.code == Code.BAD_CONFIG else "error unmarshall network config"
        raise CniError(error.code, words, error.msg) from error


Valid = frozenset[tuple[str, str]]
"""Container id and interface of every attachment that is to stay."""

VALID_ATTACHMENTS = "cni.dev/valid-attachments"
_OLDER_KEY = "cni.dev/attachments"


def valid_attachments(raw: Object) -> Valid:
    """Returns the attachments that GC must keep. A missing list is an error; an empty list keeps none."""
    key = VALID_ATTACHMENTS if VALID_ATTACHMENTS in raw else _OLDER_KEY
    if key not in raw:
        raise CniError(Code.BAD_CONFIG, f"{VALID_ATTACHMENTS}: missing")
    return frozenset(
        _attachment(attachment, f"{key}[{at}].") for at, attachment in enumerate(taken_list(raw, key, dict))
    )


def _attachment(value: Object, where: str) -> tuple[str, str]:
    """An invalid name would match no attachment, and GC would remove the one that was meant."""
    id_, ifname = taken(value, "containerID", str, "", where), taken(value, "ifname", str, "", where)
    if not is_id(id_) or not is_ifname(ifname):
        raise CniError(Code.BAD_CONFIG, f"{where}containerID, ifname: {id_!r} and {ifname!r} are not an attachment")
    return id_, ifname


def lowered(value: Any) -> Any:
    """The same with every key of every object in lower case."""
    if isinstance(value, dict):
        return {str(key).lower(): lowered(item) for key, item in value.items()}
    return [lowered(item) for item in value] if isinstance(value, list) else value
