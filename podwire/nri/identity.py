"""Name and index of a plugin, and where its runtime is; from values, nothing is opened here.

A runtime that starts a plugin itself hands it a connection as descriptor 3 and three variables. Other plugins connect
to a socket.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podwire.nri.errors import BadStart
from podwire.protocols.nri.names import BadName, PluginId, plugin_id

SOCKET = Path("/var/run/nri/nri.sock")
"""The socket on which runtimes listen by default."""

NAME, INDEX, DESCRIPTOR = "NRI_PLUGIN_NAME", "NRI_PLUGIN_IDX", "NRI_PLUGIN_SOCKET"
PATH = "NRI_SOCKET"
"""Another path than the default, for supervisors that do not know a plugin's flags."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A plugin, and its runtime: the descriptor of an existing connection, or the path of a socket."""

    plugin: PluginId
    runtime: int | Path


def identify(
    environ: Mapping[str, str],
    *,
    index: str,
    name: str,
    socket: str | os.PathLike[str] | None = None,
) -> Identity:
    """The environment takes precedence over the plugin's own index and name. Raises BadStart."""
    try:
        plugin = plugin_id(environ.get(INDEX) or index, environ.get(NAME) or name)
    except BadName as error:
        raise BadStart(str(error)) from error
    if socket is None and DESCRIPTOR in environ:
        text = environ[DESCRIPTOR]
        if not text.isdecimal():
            raise BadStart(f"{DESCRIPTOR}: {text!r} is not the number of a descriptor")
        return Identity(plugin, int(text))
    return Identity(plugin, Path(socket or environ.get(PATH) or SOCKET))
