"""What plugins want of a container, made into what is run, or refused by name. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podwire.protocols.grpc_status import InvalidArgument
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment
from podwire.protocols.nri.oci import adjusted_spec
from podwire.runtime.cdi import BadDevice, links_of
from podwire.runtime.hooks import ContainerDraft
from podwire.runtime.nri.resources import overlay_limits

REFUSED = ("cgroups_path", "io_priority", "scheduler", "rdt", "memory_policy")
"""What the OCI runtimes that podwire drives do not know, or podwire keeps for itself: never dropped in silence."""

OomScore = Callable[[int], int | None]
"""The score that may be set on this host instead of one that is wanted; None leaves it."""


Resolve = Callable[[Sequence[str]], Mapping[str, Any]]
"""What CDI devices bring. Raises BadDevice."""


def apply_adjustment(
    draft: ContainerDraft, adjust: pb.ContainerAdjustment, *, has_network: bool, oom_score: OomScore, cdi: Resolve
) -> ContainerDraft:
    """The draft with all that plugins want. Raises InvalidArgument for what cannot be had here."""
    linux = adjust.linux
    for name in REFUSED:
        if any(field.name == name for field, _ in linux.ListFields()):
            raise InvalidArgument(f"adjust.linux.{name}: not supported by podwire's runtime")
    limits = overlay_limits(draft.limits, linux.resources, "adjust.linux.resources")
    links = dict(draft.links)
    try:
        edits = cdi([each.name for each in adjust.CDI_devices]) if adjust.CDI_devices else {}
        spec = adjusted_spec(draft.spec, _for_the_spec(adjust, oom_score), cdi=lambda _names: edits)
    except BadDevice as error:
        raise InvalidArgument(f"adjust.CDI_devices: {error}") from error
    except BadAdjustment as error:
        raise InvalidArgument(str(error)) from error
    links |= links_of(edits) if edits else {}
    for name, each in linux.net_devices.items():
        if name.startswith("-"):
            links.pop(name[1:], None)
        else:
            links[name] = each.name or name
    if links and not has_network:
        raise InvalidArgument("adjust.linux.net_devices: the pod has no network namespace of its own")
    return ContainerDraft(spec=spec, limits=limits, links=links)


def _for_the_spec(adjust: pb.ContainerAdjustment, oom_score: OomScore) -> pb.ContainerAdjustment:
    """Without what the runtime sees to by itself: cgroups and links."""
    rest = pb.ContainerAdjustment()
    rest.CopyFrom(adjust)
    rest.linux.ClearField("resources")
    rest.linux.ClearField("net_devices")
    if rest.linux.HasField("oom_score_adj"):
        score = oom_score(rest.linux.oom_score_adj.value)
        if score is None:
            rest.linux.ClearField("oom_score_adj")
        else:
            rest.linux.oom_score_adj.value = score
    return rest
