"""How a plugin finds out who it is and where its runtime is. Decided from values, nothing is opened here.

A runtime that starts a plugin itself gives it a connection as descriptor 3 and three variables; everybody else connects
to a socket.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podwire.nri.errors import BadStart
from podwire.protocols.nri.names import BadName, PluginId, plugin_id

SOCKET = Path("/var/run/nri/nri.sock")
"""Where runtimes listen unless they are told otherwise."""

NAME, INDEX, DESCRIPTOR = "NRI_PLUGIN_NAME", "NRI_PLUGIN_IDX", "NRI_PLUGIN_SOCKET"
PATH = "NRI_SOCKET"
"""Another path than the usual one, for who starts a plugin without knowing its flags."""


@dataclass(frozen=True, slots=True)
class Start:
    """Who, and where: the descriptor of a connection that is there already, or the path of a socket."""

    me: PluginId
    place: int | Path


def start(
    environ: Mapping[str, str],
    *,
    index: str,
    name: str,
    socket: str | os.PathLike[str] | None = None,
) -> Start:
    """What the environment says goes before what the plugin says. Raises BadStart."""
    try:
        me = plugin_id(environ.get(INDEX) or index, environ.get(NAME) or name)
    except BadName as error:
        raise BadStart(str(error)) from error
    if socket is None and DESCRIPTOR in environ:
        return Start(me, _descriptor(environ[DESCRIPTOR]))
    return Start(me, Path(socket or environ.get(PATH) or SOCKET))


def _descriptor(text: str) -> int:
    if not text.isdecimal():
        raise BadStart(f"{DESCRIPTOR}: {text!r} is no number of a descriptor")
    return int(text)
