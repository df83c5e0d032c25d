"""What the parts of the process share."""

from collections.abc import Iterable
from dataclasses import dataclass

from podwire.dradriver.attach.netns_pins import Pins
from podwire.dradriver.claims.allocations import Order
from podwire.dradriver.claims.cdi import CdiFiles
from podwire.dradriver.claims.damaged_records import Damage
from podwire.dradriver.claims.metadata import MetadataFiles
from podwire.dradriver.instances import InstanceLock
from podwire.dradriver.ports import Addressing, Api, Attachments, Devices, Record, Trace
from podwire.dradriver.publish.claim_status import Statuses
from podwire.dradriver.publish.events import Recorder
from podwire.dradriver.publish.metrics import Meter
from podwire.tasks.keyed_locks import KeyedLocks


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
    turns: KeyedLocks
    lock: InstanceLock
    damage: Damage


def orders_in(records: Iterable[Record]) -> list[Order]:
    return [each.order for each in records]
