"""The allocation result of a claim: devices, configuration for drivers, and node selector. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from podwire.objects.claims import (
    AllocatedConfig,
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    ResourceClaim,
)
from podwire.objects.device_classes import DeviceClass
from podwire.scheduler.claims.allocator import Pick
from podwire.scheduler.claims.capacities import canonical

FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"
_NAME = "metadata.name"

NewId = Callable[[], str]


def allocation(
    claim: ResourceClaim, picks: Sequence[Pick], classes: Mapping[str, DeviceClass], node: str, new_id: NewId
) -> Allocation:
    """Builds the allocation; `new_id` names each share of a device."""
    config = (*_of_classes(claim, picks, classes), *_of_claim(claim, picks))
    return Allocation(
        devices=AllocatedDevices(results=tuple(_result(pick, new_id) for pick in picks), config=config),
        node_selector=_node_selector(picks, node),
    )


def _result(pick: Pick, new_id: NewId) -> AllocatedDevice:
    driver, pool, device = pick.candidate.identity
    shared = pick.amounts is not None
    return AllocatedDevice(
        request=pick.subrequest.name,
        driver=driver,
        pool=pool,
        device=device,
        admin_access=pick.subrequest.admin,
        tolerations=pick.subrequest.tolerations,
        share_id=new_id() if shared else None,
        consumed_capacity={name: canonical(nano) for name, nano in (pick.amounts or {}).items()},
    )


def _of_classes(
    claim: ResourceClaim, picks: Sequence[Pick], classes: Mapping[str, DeviceClass]
) -> Iterator[AllocatedConfig]:
    """Yields each class's configuration once, with its requests unless these are all."""
    used: dict[str, list[str]] = {}
    for pick in picks:
        names = used.setdefault(pick.subrequest.class_name, [])
        if pick.subrequest.name not in names:
            names.append(pick.subrequest.name)
    for class_name, names in used.items():
        about = () if len(names) == len(claim.spec.devices.requests) else tuple(names)
        class_ = classes.get(class_name)
        for config in class_.spec.config if class_ else ():
            yield AllocatedConfig(source=FROM_CLASS, requests=about, opaque=config.opaque)


def _of_claim(claim: ResourceClaim, picks: Sequence[Pick]) -> Iterator[AllocatedConfig]:
    chosen = {name for pick in picks for name in (pick.subrequest.name, pick.subrequest.name.partition("/")[0])}
    for config in claim.spec.devices.config:
        if not config.requests or not chosen.isdisjoint(config.requests):
            yield AllocatedConfig(source=FROM_CLAIM, requests=config.requests, opaque=config.opaque)


def _node_selector(picks: Iterable[Pick], node: str) -> dict[str, Any] | None:
    """Returns a selector of the one node if any device is local to it; else all terms of the devices' selectors."""
    expressions: list[dict[str, Any]] = []
    fields: list[dict[str, Any]] = []
    for pick in picks:
        node_scope = pick.candidate.node_scope
        if node_scope.node or pick.candidate.device.binds_to_node:
            only = {"key": _NAME, "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        for term in (node_scope.selector or {}).get("nodeSelectorTerms") or ():
            expressions += [one for one in term.get("matchExpressions") or () if one not in expressions]
            fields += [one for one in term.get("matchFields") or () if one not in fields]
    if not expressions and not fields:
        return None
    term = {"matchExpressions": expressions} if expressions else {}
    return {"nodeSelectorTerms": [term | ({"matchFields": fields} if fields else {})]}
