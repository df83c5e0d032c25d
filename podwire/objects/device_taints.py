"""Taints of devices, rules that add more of them, and tolerations in claims. `read_rule(object)` gives a rule. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from podwire.objects.containers import Part
from podwire.objects.pods import Metadata

NO_EXECUTE = "NoExecute"
HARD = ("NoSchedule", NO_EXECUTE)
"""Effects that keep a device from being allocated; any other, known or not, is for people to look at."""


class DeviceTaint(Part, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class DeviceToleration(Part, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class DeviceTaintSelector(Part, frozen=True, kw_only=True):
    """The device selector of a taint rule: all given fields must match."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Part, frozen=True, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()

    @property
    def name(self) -> str:
        return self.metadata.name

    def covers(self, driver: str, pool: str, device: str) -> bool:
        """Without a selector it is for no device; an empty selector is for all of them."""
        wanted = self.spec.device_selector
        if wanted is None:
            return False
        pairs = ((wanted.driver, driver), (wanted.pool, pool), (wanted.device, device))
        return all(asked is None or asked == given for asked, given in pairs)


def read_rule(object_: Mapping[str, Any]) -> DeviceTaintRule:
    """Raises msgspec.ValidationError, which names the field, for what no API server should hold."""
    return msgspec.convert(object_, DeviceTaintRule)


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Without an effect it is for all of them; without a key, and with Exists, for all taints."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or (toleration.operator == "Equal" and toleration.value == taint.value)


def untolerated(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> Iterator[DeviceTaint]:
    """Those that keep a device from a request with these tolerations."""
    given = tuple(tolerations)
    for taint in taints:
        if taint.effect in HARD and not any(tolerates(toleration, taint) for toleration in given):
            yield taint
