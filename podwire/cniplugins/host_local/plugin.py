"""host-local: addresses from ranges, leased on this host's disk."""

from podwire.cniplugins.skeleton import Call, Plugin
from podwire.ipam import host_local
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.results import Result


def add(call: Call) -> Result:
    return host_local.add(call.config, call.invocation, call.tell)


def check(call: Call) -> None:
    host_local.check(call.config, call.invocation)


def delete(call: Call) -> None:
    host_local.delete(call.config, call.invocation, call.tell)


def gc(call: Call, valid: Valid) -> None:
    host_local.gc(call.config, valid, call.tell, call.others)


def status(call: Call) -> None:
    host_local.status(call.config, call.invocation)


def check_wish(call: Call) -> None:
    host_local.wish(call.config, call.invocation)


PLUGIN = Plugin("host-local", add, check, delete, gc, status, check_wish)
