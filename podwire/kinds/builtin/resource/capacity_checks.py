"""Capacity of a device that several claims share: the policy that rounds their requests."""

import itertools

from podwire.kinds.builtin.resource.device_checks import distinct
from podwire.kinds.field_checks import Errors, Object
from podwire.objects.quantity import Quantity, parse
from podwire.protocols.k8sapi.status import forbidden, invalid, required

MOST_VALUES = 10

_ONE_POLICY = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'


def capacity(given: Object, path: str, errors: Errors, *, shared: bool) -> None:
    policy, place = given.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return
    if not shared:
        errors.append(forbidden(place, "allowMultipleAllocations must be true"))
        return
    values, range_ = policy.get("validValues") or (), policy.get("validRange")
    default = policy.get("default")
    if values and range_ is not None:
        errors.append(forbidden(place, _ONE_POLICY))
    elif values and default is None:
        errors.append(required(f"{place}.default", "required when validValues is defined"))
    elif range_ is not None and default is None:
        errors.append(required(f"{place}.default", "required when validRange is defined"))
    elif values:
        parsed = [_amount(value) for value in values]
        _values(parsed, _amount(default), _amount(given.get("value", 0)), f"{place}.validValues", errors)
    elif range_ is not None:
        _range(range_, _amount(default), _amount(given.get("value", 0)), f"{place}.validRange", errors)


def _amount(written: str | float) -> Quantity:
    return parse(str(written))


def _values(values: list[Quantity], default: Quantity, most: Quantity, path: str, errors: Errors) -> None:
    for index, (amount, following) in enumerate(itertools.pairwise(values), 1):
        if amount > following:
            errors.append(invalid(f"{path}[{index}]", str(following), "values must be sorted in ascending order"))

    def fits(value: Quantity, place: str, item_errors: Errors) -> None:
        if value > most:
            item_errors.append(invalid(place, str(value), f"option is larger than capacity value: {most}"))

    distinct(values, MOST_VALUES, fits, str, path, errors)
    if default not in values:
        errors.append(invalid(path, str(default), "default value is not valid according to the requestPolicy"))


def _range(given: Object, default: Quantity, most: Quantity, path: str, errors: Errors) -> None:
    if given.get("min") is None:
        errors.append(required(f"{path}.min", "required when validRange is defined"))
        return
    low = _amount(given["min"])
    if low > most:
        errors.append(invalid(f"{path}.min", str(low), f"min is larger than capacity value: {most}"))
    if default < low:
        errors.append(invalid(f"{path}.default", str(default), f"default is less than min: {low}"))
    high = None if given.get("max") is None else _amount(given["max"])
    if high is not None:
        if low > high:
            errors.append(invalid(f"{path}.max", str(low), f"min is larger than max: {high}"))
        if high > most:
            errors.append(invalid(f"{path}.max", str(high), f"max is larger than capacity value: {most}"))
        if default > high:
            errors.append(invalid(f"{path}.default", str(default), f"default is more than max: {high}"))
    if given.get("step") is not None:
        steps = [default] if high is None else [default, high]
        _step(_amount(given["step"]), low, steps, most, f"{path}.step", errors)


def _step(step: Quantity, low: Quantity, reached: list[Quantity], most: Quantity, path: str, errors: Errors) -> None:
    if step.nano <= 0:
        errors.append(invalid(path, str(step), "must be greater than zero"))
        return
    if low + step > most:
        errors.append(invalid(path, str(step), f"one step {low + step} is larger than capacity value: {most}"))
    for amount in reached:
        if (amount.nano - low.nano) % step.nano:
            detail = f"value is not a multiple of a given step ({step}) from ({low})"
            errors.append(invalid(path, str(amount), detail))
