"""Releases attachments whose namespace has ended, by their records alone: no network configuration, no runtime.

For a node that runs other plugins again. These delete the links and release the addresses of pods that ours had added,
but do not know our rules, and a network before version 1.1.0 has no GC.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

from podwire.cniplugins.attachments import Record, records
from podwire.cniplugins.ipam_delegate import IN_PROCESS, ipam_type
from podwire.cniplugins.order import OrderedPlugin
from podwire.cniplugins.overview import Attached, attached
from podwire.cniplugins.skeleton import PLUGINS, Call
from podwire.protocols.cni.config import plugin_config
from podwire.protocols.cni.values import dumped
from podwire.protocols.cni.verbs import Invocation


def release_dead(data: str, path: str, warn: Callable[[str], None]) -> Iterator[Attached]:
    """Yields each attachment below a directory of records that it has released. Raises CniError, LinuxError, OSError.

    `path` is CNI_PATH, for IPAM plugins of others.
    """
    for attachment in attached(data):
        if not attachment.alive:
            release(of_attachment(data, attachment), data, path, warn)
            yield attachment


def of_attachment(data: str, attachment: Attached) -> Iterator[tuple[OrderedPlugin, Record]]:
    """Yields the records of an attachment with their plugins; the plugin that makes the pod's link is the last."""
    plugins: list[OrderedPlugin] = [import_module(PLUGINS[name]).PLUGIN for name in attachment.plugins]
    for plugin in sorted(plugins, key=lambda plugin: not plugin.chained):
        for record in records(os.path.join(data, plugin.name)):
            if (record.network, record.container_id, record.ifname) == attachment[:3]:
                yield plugin, record


def release(
    attachment: Iterable[tuple[OrderedPlugin, Record]], data: str, path: str, warn: Callable[[str], None]
) -> None:
    """Releases what the records of an attachment name."""
    for plugin, record in attachment:
        plugin.delete(as_del(record, data, path, warn))


def as_del(record: Record, data: str, path: str, warn: Callable[[str], None]) -> Call:
    """Returns the DEL of a record. Our own host-local releases its leases, whichever one is in CNI_PATH now."""
    is_ours = ipam_type(record.config) in IN_PROCESS
    request = Invocation("DEL", record.container_id, record.netns, record.ifname, path="" if is_ours else path)
    config = plugin_config(dumped(record.config | {"dataDir": data}))
    return Call(request, config, warn=warn)
