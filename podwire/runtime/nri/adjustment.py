"""Applies plugins' ContainerAdjustment to a container, and refuses what is unsupported. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podwire.protocols.grpc_status import InvalidArgument
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment
from podwire.protocols.nri.oci import adjusted_spec
from podwire.runtime.cdi import BadDevice, links_of
from podwire.runtime.hooks import ContainerDraft
from podwire.runtime.nri.resources import overlay_limits

UNSUPPORTED = ("cgroups_path", "io_priority", "scheduler", "rdt", "memory_policy")
"""Fields that crun and runc do not know, or that podwire sets itself: an error, never ignored."""

OomScore = Callable[[int], int | None]
"""Returns the score that can be set on this host instead of a requested one; None to leave it unset."""

Resolve = Callable[[Sequence[str]], Mapping[str, Any]]
"""Resolves CDI devices to container edits. Raises BadDevice."""


def apply_adjustment(
    draft: ContainerDraft, adjust: pb.ContainerAdjustment, *, has_network: bool, oom_score: OomScore, cdi: Resolve
) -> ContainerDraft:
    """Returns the draft with the adjustment. Raises InvalidArgument for what is unsupported."""
    linux = adjust.linux
    for name in UNSUPPORTED:
        if any(field.name == name for field, _ in linux.ListFields()):
            raise InvalidArgument(f"adjust.linux.{name}: not supported by podwire's runtime")
    limits = overlay_limits(draft.limits, linux.resources, "adjust.linux.resources", None)
    links = dict(draft.links)
    try:
        edits = cdi([device.name for device in adjust.CDI_devices]) if adjust.CDI_devices else {}
        spec = adjusted_spec(draft.spec, _spec_part(adjust, oom_score), cdi=lambda _names: edits)
    except BadDevice as error:
        raise InvalidArgument(f"adjust.CDI_devices: {error}") from error
    except BadAdjustment as error:
        raise InvalidArgument(str(error)) from error
    links |= links_of(edits) if edits else {}
    for name, device in linux.net_devices.items():
        if name.startswith("-"):
            links.pop(name[1:], None)
        else:
            links[name] = device.name or name
    if links and not has_network:
        raise InvalidArgument("adjust.linux.net_devices: the pod has no network namespace of its own")
    return ContainerDraft(spec=spec, limits=limits, links=links)


def _spec_part(adjust: pb.ContainerAdjustment, oom_score: OomScore) -> pb.ContainerAdjustment:
    """Returns the adjustment without what the runtime applies itself: limits and net devices."""
    rest = pb.ContainerAdjustment()
    rest.CopyFrom(adjust)
    rest.linux.ClearField("resources")
    rest.linux.resources.devices.extend(adjust.linux.resources.devices)
    rest.linux.ClearField("net_devices")
    if rest.linux.HasField("oom_score_adj"):
        score = oom_score(rest.linux.oom_score_adj.value)
        if score is None:
            rest.linux.ClearField("oom_score_adj")
        else:
            rest.linux.oom_score_adj.value = score
    return rest
