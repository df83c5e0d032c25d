"""Applies CDI container edits to a config.json. The caller resolves the edits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podwire.protocols.nri.entries import put_variable
from podwire.protocols.nri.errors import BadAdjustment
from podwire.protocols.nri.oci.devices import put_device
from podwire.protocols.nri.oci.mounts import put_mount

Resolve = Callable[[Sequence[str]], Mapping[str, Any]]
"""Qualified names (vendor.com/class=name) to the `containerEdits` of CDI, one for all of them; its device nodes have
their types and numbers. Raises BadAdjustment."""

FIELD = "adjust.CDI_devices"


def inject(spec: dict[str, Any], names: Sequence[str], resolve: Resolve | None) -> None:
    """Net devices are left to the caller, which moves links. Raises BadAdjustment."""
    if not names:
        return
    if resolve is None:
        raise BadAdjustment(FIELD, f"CDI is not available, so {', '.join(names)} cannot be resolved")
    edits = resolve(names)
    process = spec.setdefault("process", {})
    for variable in edits.get("env") or ():
        name, _, value = variable.partition("=")
        put_variable(process.setdefault("env", []), name, value)
    for node in edits.get("deviceNodes") or ():
        put_device(spec, _node(node), access=node.get("permissions") or "rwm")
    for mount in edits.get("mounts") or ():
        put_mount(spec, _mount(mount))
    for hook in edits.get("hooks") or ():
        entry = {key: hook[key] for key in ("path", "args", "env", "timeout") if key in hook}
        spec.setdefault("hooks", {}).setdefault(hook["hookName"], []).append(entry)
    if groups := edits.get("additionalGids"):
        user = process.setdefault("user", {})
        user["additionalGids"] = list(dict.fromkeys([*(user.get("additionalGids") or ()), *groups]))


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    if not node.get("type"):
        raise BadAdjustment(FIELD, f"the device node {node.get('path')!r} has no type")
    return {key: node[key] for key in ("path", "type", "major", "minor", "fileMode", "uid", "gid") if key in node}


def _mount(mount: Mapping[str, Any]) -> dict[str, Any]:
    entry = {"destination": mount["containerPath"], "source": mount["hostPath"]}
    if mount.get("type"):
        entry["type"] = mount["type"]
    return entry | {"options": list(mount.get("options") or ())}
