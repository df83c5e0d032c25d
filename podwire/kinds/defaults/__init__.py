"""What the server adds to an object that leaves things open, kind by kind.

`apply` fills an object that was just decoded, on every write; `creation.prepare` sets what only creation sets.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from podwire.kinds.defaults import admission, core, devices, networking, pod, policies, storage, workloads
from podwire.kinds.defaults.structs import STRUCTS, fill
from podwire.protocols.k8sapi.kinds import Kind

__all__ = ["apply"]

_FUNCTIONS: Mapping[tuple[str, str], Callable[[dict[str, Any]], None]] = {
    **core.DEFAULTS,
    **pod.DEFAULTS,
    **workloads.DEFAULTS,
    **networking.DEFAULTS,
    **policies.DEFAULTS,
    **storage.DEFAULTS,
    **admission.DEFAULTS,
    **devices.DEFAULTS,
}


def apply(kind: Kind, obj: dict[str, Any], *, now: Callable[[], float] = time.time) -> None:
    """Fill in what the object leaves open. Changes `obj`; does nothing to kinds that have no defaults."""
    key = (kind.group, kind.kind)
    if "metadata" not in obj:
        obj["metadata"] = {}
    if (parts := STRUCTS.get(key)) is not None:
        fill(obj, parts)
    if (function := _FUNCTIONS.get(key)) is not None:
        function(obj)
    elif (dated := devices.DATED.get(key)) is not None:
        dated(obj, now)
