"""A DeviceClass, with the fields that components decide on, and the types that it shares with claims."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.objects.containers import Part
from podwire.objects.pods import Metadata


class CelSelector(Part, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(Part, frozen=True, kw_only=True):
    cel: CelSelector = CelSelector()


class OpaqueConfig(Part, frozen=True, kw_only=True):
    """Opaque driver configuration."""

    driver: str = ""
    parameters: dict[str, Any] = {}


class DeviceClassConfig(Part, frozen=True, kw_only=True):
    opaque: OpaqueConfig = OpaqueConfig()


class DeviceClassSpec(Part, frozen=True, kw_only=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfig, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def name(self) -> str:
        return self.metadata.name


def read(object_: Mapping[str, Any]) -> DeviceClass:
    """Raises msgspec.ValidationError, which names the field, for what no API server should hold."""
    return msgspec.convert(object_, DeviceClass)
