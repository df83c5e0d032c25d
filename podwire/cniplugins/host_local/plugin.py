"""host-local: the IPAM plugin that leases addresses of ranges on this host's disk; `podwire.ipam` does the work."""

from functools import partial

from podwire.cniplugins.skeleton import Call, Plugin, check_late
from podwire.ipam import host_local
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.results import Result


class HostLocal(Plugin):
    name = "host-local"

    def add(self, call: Call) -> Result:
        return host_local.add(call.config, call.invocation, call.warn, partial(check_late, call))

    def check(self, call: Call) -> None:
        host_local.check(call.config, call.invocation)

    def delete(self, call: Call) -> None:
        host_local.delete(call.config, call.invocation, call.warn, note=not call.delegated)

    def gc(self, call: Call, valid: Valid) -> None:
        host_local.gc(call.config, valid, call.warn, call.also_valid)

    def status(self, call: Call) -> None:
        host_local.status(call.config, call.invocation)

    def check_request(self, call: Call) -> None:
        host_local.parse_request(call.config, call.invocation)


PLUGIN = HostLocal()
