"""Capacity that a request consumes, rounded up by the device's request policy, in nanos. Pure."""

from collections.abc import Mapping

from podwire.objects import quantity
from podwire.objects.slices import CapacityPolicy, CapacityRange, Quantity
from podwire.scheduler.claims.claim_requests import Subrequest
from podwire.scheduler.claims.devices import Candidate, qualified

Amounts = Mapping[str, int]
"""Nanos by the name that the device gives a capacity."""


def _nano(given: Quantity) -> int:
    return quantity.parse(str(given)).nano


def taken(candidate: Candidate, subrequest: Subrequest) -> Amounts | str:
    """Returns the consumed capacities, or a text that says why the request can never fit."""
    asked = {qualified(name, candidate.driver): amount for name, amount in subrequest.amounts}
    for name in asked:
        if name not in candidate.capacity:
            return f"has no capacity {name}"
    amounts = {}
    for name, capacity in candidate.capacity.items():
        amount = rounded(asked.get(name), capacity.nano, capacity.policy if candidate.shared else None)
        if amount is None or amount > capacity.nano:
            return f"{capacity.name} {canonical(capacity.nano)} < {canonical(asked.get(name, capacity.nano))}"
        amounts[capacity.name] = amount
    return amounts


def rounded(asked: int | None, whole: int, policy: CapacityPolicy | None) -> int | None:
    """Returns the consumed amount; None if the policy does not allow it."""
    if asked is None:
        return _nano(policy.default) if policy is not None and policy.default is not None else whole
    if policy is None:
        return asked
    if policy.valid_values:
        return min((nano for value in policy.valid_values if (nano := _nano(value)) >= asked), default=None)
    return _in_range(asked, policy.valid_range) if policy.valid_range is not None else asked


def _in_range(asked: int, given: CapacityRange) -> int | None:
    least = _nano(given.min) if given.min is not None else 0
    amount = max(asked, least)
    if given.step is not None and (step := _nano(given.step)) > 0:
        amount = least - (least - amount) // step * step
    return None if given.max is not None and amount > _nano(given.max) else amount


def lacking(candidate: Candidate, amounts: Amounts, held: Mapping[str, int]) -> str:
    """Returns which capacity is insufficient, as text; empty when all suffice."""
    for capacity in candidate.capacity.values():
        left = capacity.nano - held.get(capacity.name, 0)
        if amounts.get(capacity.name, 0) > left:
            return f"{capacity.name}: {canonical(left)} left < {canonical(amounts[capacity.name])}"
    return ""


def canonical(nano: int) -> str:
    """Writes an amount as the API server would."""
    form = quantity.Format.DECIMAL_SI if nano % (1024 * quantity.NANO) else quantity.Format.BINARY_SI
    return quantity.Quantity(nano, form).canonical()
