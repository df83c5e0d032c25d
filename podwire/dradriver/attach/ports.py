"""Ports of bridges: the host's ends of veths that are made for claims, guarded as those of the CNI plugin bridge."""

import logging
from collections.abc import Collection
from contextlib import closing

from podwire.linux.nft.port_guard import GROUP, ensure_guard
from podwire.linux.nft.table import KernelElements

_log = logging.getLogger("podwire.dradriver")


class BridgePorts:
    """Decides which ports are guarded. `trusted` are the bridges whose pods may be DHCP servers and routers."""

    def __init__(self, trusted: Collection[str] = ()) -> None:
        self._trusted = frozenset(trusted)
        self._has_warned = False

    def group(self, bridge: str) -> int:
        """Returns the link group of a new port of a bridge on the host. Makes the rules of the guard first."""
        if bridge in self._trusted:
            return 0
        with closing(KernelElements()) as elements:
            return GROUP if ensure_guard(elements, self._warn) else 0

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("ports of bridges are not guarded against rogue servers", extra={"error": str(error)})
