"""ResourceQuota: refuses what would exceed a quota of the namespace, and records what is used in the quota's status.

The usage is charged just before the object is stored, by a compare-and-swap of each quota's status, and given back when
the object certainly was not stored. Writes of one namespace charge one after another; another API server, or the
controller that recalculates the usage, makes a charge lose the race and start again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.admission.informers import ObjectInformer
from podwire.apiserver.ports import Store
from podwire.apiserver.request import offload
from podwire.interfaces import Clock
from podwire.kinds.podspec.resource_totals import ZERO, Amounts, amounts
from podwire.kinds.quota.decision import Change, LimitedResource, Refused, check
from podwire.kinds.quota.evaluators import evaluator_of
from podwire.kinds.stored import Object, pack, unpack
from podwire.objects.quantity import Quantity
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.storage import Stale
from podwire.tasks.keyed_locks import KeyedLocks

CHARGE_SECONDS = 10.0
"""How long a write waits for its turn to charge the quotas of its namespace."""
ATTEMPTS = 10
"""How often a charge starts again after a lost race."""


@dataclass(frozen=True, slots=True)
class ResourceQuotas(AdmissionPlugin):
    """Checks and charges the quotas that count an object."""

    quotas: ObjectInformer
    store: Store
    clock: Clock
    limited: Sequence[LimitedResource] = ()
    locks: KeyedLocks = field(default_factory=KeyedLocks)

    verbs = WRITES

    async def validate(self, operation: Operation) -> None:
        if not operation.namespace:
            return
        quotas = await self.quotas.all(operation.namespace)
        if not quotas and not self.limited:
            return
        change = self._change(operation)
        if change is None:
            return
        if await offload.run(self._checked, operation, list(quotas), change):
            operation.reservations.append(partial(self._reserve, operation, change))

    def _change(self, operation: Operation) -> Change | None:
        resource, old = operation.resource, operation.old
        evaluator = evaluator_of(resource.group, resource.name)
        conversion = resource.conversion
        obj = conversion.to_stored(operation.obj) if conversion else operation.obj
        if evaluator is None or not evaluator.handles(operation.verb, operation.subresource, obj, old):
            return None
        return Change(
            evaluator=evaluator,
            obj=obj,
            old=conversion.to_stored(old) if conversion and old else old,
            status_only=operation.subresource == "status",
            now=self.clock.wall(),
        )

    def _checked(self, operation: Operation, quotas: Sequence[Object], change: Change) -> dict[str, Amounts]:
        kind = (operation.resource.group, operation.resource.name)
        limited = [resource for resource in self.limited if (resource.group, resource.resource) == kind]
        try:
            return check(quotas, change, limited)
        except Refused as error:
            raise operation.forbidden(str(error)) from error

    async def _reserve(self, operation: Operation, change: Change) -> None:
        try:
            async with asyncio.timeout(CHARGE_SECONDS), self.locks.hold(operation.namespace):
                await self._charge(operation, change)
        except TimeoutError as error:
            message = "Internal error occurred: resource quota evaluation timed out"
            raise ApiError(Reason.INTERNAL_ERROR, message) from error

    async def _charge(self, operation: Operation, change: Change) -> None:
        """Charges every quota that counts the object; what is charged stays charged while the others start again."""
        charged: set[str] = set()
        for _ in range(ATTEMPTS):
            quotas = [quota for quota in await self._read(operation.namespace) if _name(quota) not in charged]
            added = await offload.run(self._checked, operation, quotas, change)
            lost = False
            for quota in quotas:
                amounts_ = added.get(_name(quota))
                if not amounts_:
                    continue
                try:
                    await self._write(quota, amounts_, lambda used, more: used + more)
                except Stale:
                    lost = True
                    continue
                charged.add(_name(quota))
                operation.undos.append(partial(self._give_back, operation.namespace, _name(quota), amounts_))
            if not lost:
                return
        raise ApiError(
            Reason.CONFLICT, f"the quotas of namespace {operation.namespace} change too fast; try again",
            details={"retryAfterSeconds": 1},
        )  # fmt: skip

    async def _read(self, namespace: str) -> list[Object]:
        """Returns the quotas with the revisions that they have now."""
        keys = [f"{self.quotas.prefix}{namespace}/{_name(quota)}" for quota in await self.quotas.all(namespace)]
        items = [await self.store.get(key) for key in keys]
        return [unpack(item) for item in items if item is not None]

    async def _write(self, quota: Object, change: Amounts, combine: Callable[[Quantity, Quantity], Quantity]) -> None:
        status = quota["status"]
        used = amounts(status.get("used"))
        new = {name: str(combine(used.get(name, ZERO), amount)) for name, amount in change.items()}
        obj = {**quota, "status": {**status, "used": {**status.get("used", {}), **new}}}
        key = f"{self.quotas.prefix}{quota['metadata']['namespace']}/{_name(quota)}"
        await self.store.update(key, pack(obj), expected=int(quota["metadata"]["resourceVersion"]))

    async def _give_back(self, namespace: str, name: str, charged: Amounts) -> None:
        """Subtracts a charge; the controller's next recalculation corrects what a lost race leaves."""
        for _ in range(ATTEMPTS):
            item = await self.store.get(f"{self.quotas.prefix}{namespace}/{name}")
            if item is None:
                return
            try:
                await self._write(unpack(item), charged, lambda used, less: max(used - less, ZERO))
            except Stale:
                continue
            return


def _name(quota: Object) -> str:
    name: str = quota["metadata"]["name"]
    return name
