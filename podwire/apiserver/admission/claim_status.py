"""Authorizes writes to parts of a claim's status: schedulers write the allocation, drivers the status of devices.

Both need permissions besides that on `resourceclaims/status`: on `resourceclaims/binding`, and on
`resourceclaims/driver` by the driver's name, with verbs that say on which nodes. It is not known here whether the write
was an update or a patch, so either permission suffices.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.identity.authorization import Attributes, Authorizer, forbidden
from podwire.kinds.stored import Object

GROUP = "resource.k8s.io"
NODE_NAME = "authentication.kubernetes.io/node-name"

_VERBS = ("update", "patch")


@dataclass(frozen=True, slots=True)
class ClaimStatusRights(AdmissionPlugin):
    """Authorizes the parts of a claim's status that a write really changes."""

    authorizer: Authorizer

    resources = frozenset({(GROUP, "resourceclaims")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource != "status":
            return
        old, new = (operation.old or {}).get("status") or {}, operation.obj.get("status") or {}
        if any(old.get(part) != new.get(part) for part in ("allocation", "reservedFor")):
            self._require(operation, "binding", operation.name, _VERBS)
        # Near: the user is on the one node of the claim's devices.
        nodes = operation.user.extra.get(NODE_NAME, ())
        near = bool(nodes) and list(nodes) == nodes_of(operation.obj)
        verbs = [f"{where}:{verb}" for where in _places(near=near) for verb in _VERBS]
        for driver in changed_drivers(old, new):
            self._require(operation, "driver", driver, verbs)

    def _require(self, operation: Operation, part: str, name: str, verbs: Iterable[str]) -> None:
        asked = [
            Attributes(
                verb=verb,
                group=GROUP,
                version=operation.resource.kind.version,
                resource="resourceclaims",
                subresource=part,
                namespace=operation.namespace,
                name=name,
            )
            for verb in verbs
        ]
        if not any(self.authorizer.check(operation.user, attributes).allowed for attributes in asked):
            raise forbidden(operation.user, asked[0])


def _places(*, near: bool) -> Iterator[str]:
    if near:
        yield "associated-node"
    yield "arbitrary-node"


def nodes_of(claim: Object) -> list[str]:
    """Returns the nodes that an allocation names; nodes that it selects by labels are not known here."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    named: list[str] = []
    for term in (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
        fields = term.get("matchFields") or ()
        picked = [field for field in fields if field.get("key") == "metadata.name" and field.get("operator") == "In"]
        named += [name for requirement in picked for name in requirement.get("values") or ()] or [""]
    return named


def changed_drivers(old: Object, new: Object) -> list[str]:
    """Returns the drivers whose device status changes."""
    before, now = _devices_by_driver(old), _devices_by_driver(new)
    return sorted(driver for driver in {*before, *now} if before.get(driver) != now.get(driver))


def _devices_by_driver(status: Object) -> dict[str, list[Object]]:
    devices: dict[str, list[Object]] = {}
    for device in status.get("devices") or ():
        devices.setdefault(device.get("driver") or "", []).append(device)
    return devices
