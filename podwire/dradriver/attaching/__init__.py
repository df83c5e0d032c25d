"""Devices of claims on their way: put on record, moved or made in their pods, given back as they were."""

from podwire.dradriver.attaching.attachments import Attached, AttachFailed, Attachments, NotGivenBack
from podwire.dradriver.attaching.records import ATTACHED, PREPARED, Record

__all__ = ["ATTACHED", "PREPARED", "AttachFailed", "Attached", "Attachments", "NotGivenBack", "Record"]
