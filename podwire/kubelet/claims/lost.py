"""Damaged records of claims that no pod uses any more: what can still be told of them, so that drivers let go.

A claim that a pod uses is recorded anew when its record is damaged. Nobody would ever speak of the others again.
"""

import re

import msgspec

from podwire.kubelet.claims.claim_info import ClaimInfo
from podwire.objects.names import dns_subdomain

_FIELD = rb'"%s":"([a-z0-9.-]{1,253})"'


def salvage(uid: str, data: bytes) -> ClaimInfo:
    """Without drivers if it is not known which. `uid` is the file's name. Pure."""
    found = _whole(uid, data) or ClaimInfo(
        uid=uid, namespace=_word(b"namespace", data), name=_word(b"name", data), allocation="", drivers={}
    )
    return msgspec.structs.replace(found, drivers=dict.fromkeys(found.drivers), boots={}, users=(), leaving=True)


def _whole(uid: str, data: bytes) -> ClaimInfo | None:
    """Something of it is wrong; the names of its drivers may still be right, and to ask one too many does no harm."""
    try:
        found = msgspec.json.decode(data.partition(b"\n")[2], type=ClaimInfo)
    except msgspec.DecodeError:
        return None
    names = (uid, found.namespace, found.name, *found.drivers)
    return found if found.uid == uid and not any(map(dns_subdomain, names)) else None


def _word(field: bytes, data: bytes) -> str:
    told = re.search(_FIELD % field, data)
    return told[1].decode() if told else ""
