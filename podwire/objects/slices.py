"""A ResourceSlice: published devices, with the fields that components decide on. `read(object)` parses one."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.objects.containers import Part
from podwire.objects.device_taints import DeviceTaint
from podwire.objects.pods import Metadata

Quantity = str | int | float
Value = bool | int | str | tuple[bool, ...] | tuple[int, ...] | tuple[str, ...]


class DeviceAttribute(Part, frozen=True, kw_only=True):
    """Exactly one of its fields is set; which one is the attribute's type."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None

    @property
    def type(self) -> str:
        """The name of the one field that is set, as the API has it; empty when none is."""
        return next((field.rstrip("_") for field in self.__struct_fields__ if getattr(self, field) is not None), "")

    @property
    def value(self) -> Value | None:
        return next((each for field in self.__struct_fields__ if (each := getattr(self, field)) is not None), None)


class CapacityRange(Part, frozen=True, kw_only=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityPolicy(Part, frozen=True, kw_only=True):
    """How a request for a share of a capacity is rounded up; requests that name nothing get the default."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Part, frozen=True, kw_only=True):
    value: Quantity = 0
    request_policy: CapacityPolicy | None = None


class Device(Part, frozen=True, kw_only=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[dict[str, Any], ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    node_name: str = ""
    node_selector: dict[str, Any] | None = None
    all_nodes: bool = False
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(Part, frozen=True, kw_only=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Part, frozen=True, kw_only=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: dict[str, Any] | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()


class ResourceSlice(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: ResourceSliceSpec = ResourceSliceSpec()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def pool(self) -> tuple[str, str]:
        """Driver and name: with a device's own name they are its identity."""
        return self.spec.driver, self.spec.pool.name


def read(object_: Mapping[str, Any]) -> ResourceSlice:
    """Raises msgspec.ValidationError, which names the field, for what no API server should hold."""
    return msgspec.convert(object_, ResourceSlice)
