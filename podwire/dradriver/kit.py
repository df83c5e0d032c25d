"""What the parts of the process share."""

from collections.abc import Iterable
from dataclasses import dataclass

from podwire.dradriver.cdi import CdiFiles
from podwire.dradriver.damage import Damage
from podwire.dradriver.events import Recorder
from podwire.dradriver.instances import InstanceLock
from podwire.dradriver.metadata import MetadataFiles
from podwire.dradriver.metrics import Meter
from podwire.dradriver.offers import Order
from podwire.dradriver.pins import Pins
from podwire.dradriver.ports import Addressing, Api, Attachments, Devices, Record, Trace
from podwire.dradriver.status import Statuses
from podwire.tasks.keyed_locks import Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    node: str
    api: Api
    devices: Devices
    attachments: Attachments
    addressing: Addressing
    cdi: CdiFiles
    metadata: MetadataFiles
    pins: Pins
    statuses: Statuses
    events: Recorder
    meter: Meter
    trace: Trace
    turns: Turns
    lock: InstanceLock
    damage: Damage


def orders_in(records: Iterable[Record]) -> list[Order]:
    return [each.order for each in records]
