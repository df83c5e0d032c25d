"""dhcp: the IPAM plugin whose addresses come from the network's own DHCP server.

It needs the pod's link, over which it asks (`ipam_delegate.needs_link`). A daemon does that, and renews the lease
while the pod lives (`podwire.ipam.dhcp.daemon`); the plugin only calls it.
"""

import os
from base64 import b64encode

from podwire.cniplugins.skeleton import Call, Plugin, pod_namespace, require_previous
from podwire.ipam.dhcp import calls
from podwire.ipam.dhcp.calls import NoDaemon
from podwire.ipam.dhcp.request import parse_request, socket_path
from podwire.protocols.cni import results
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Object, interface, taken, taken_list
from podwire.protocols.cni.versions import LATEST

_PROCESS_PATHS = ("/proc/self/", "/proc/thread-self/")
"""Paths of namespaces that mean something else in the daemon."""


class Dhcp(Plugin):
    name = "dhcp"

    def add(self, call: Call) -> Result:
        request, inode = parse_request(call.config, call.invocation), pod_namespace(call)
        netns = os.path.abspath(call.invocation.netns)
        if netns.startswith(_PROCESS_PATHS):
            raise CniError(Code.BAD_NETNS, f"CNI_NETNS: {netns} is another namespace for the DHCP daemon")
        answer = _ask(
            call,
            "acquire",
            netns=netns,
            inode=inode,
            client_id=b64encode(request.client_id).decode(),
            wishes=b64encode(request.wishes).decode(),
            provided=[[code, b64encode(value).decode()] for code, value in request.provided],
            priority=request.priority,
            parent=request.parent,
        )
        return results.decode(answer.get("result"), LATEST, "result of the DHCP daemon")

    def check(self, call: Call) -> None:
        """Expects a lease that has time left, of an address of prevResult."""
        leased = interface(taken(_ask(call, "check"), "address", str, ""), "leased address")
        if leased not in [ip.address for ip in require_previous(call).ips]:
            raise CniError(Code.NOT_AS_ADDED, f"ipam: the DHCP lease is of {leased}, which is not in prevResult")

    def delete(self, call: Call) -> None:
        """Succeeds without a daemon if there is nothing to release."""
        try:
            _ask(call, "release")
        except NoDaemon:
            request = call.invocation
            if calls.has_lease(socket_path(call.config), call.config.name, request.container_id, request.ifname):
                raise

    def gc(self, call: Call, valid: Valid) -> None:
        """Lists leases before records: the record of an attachment that is being added exists by then."""
        path = socket_path(call.config)
        try:
            answer = calls.call(path, {"verb": "list", "network": call.config.name}, call.limits.delegate)
        except NoDaemon:
            if calls.has_leases(path):
                raise
            return
        owners = {(pair[0], pair[1]) for pair in taken_list(answer, "leases", list)}
        for container_id, ifname in sorted(owners - valid - call.also_valid()):
            request = call.invocation._replace(container_id=container_id, ifname=ifname)
            _ask(call._replace(invocation=request), "release")

    def status(self, call: Call) -> None:
        parse_request(call.config, call.invocation)
        path = socket_path(call.config)
        try:
            calls.call(path, {"verb": "status"}, call.limits.delegate)
        except CniError as error:
            code = Code.LIMITED if calls.has_leases(path) else Code.UNAVAILABLE
            raise CniError(code, error.msg, error.details) from error

    def check_request(self, call: Call) -> None:
        parse_request(call.config, call.invocation)
        calls.check_daemon(socket_path(call.config))


def _ask(call: Call, verb: str, **more: object) -> Object:
    request: Object = {
        "verb": verb,
        "network": call.config.name,
        "container": call.invocation.container_id,
        "ifname": call.invocation.ifname,
        **more,
    }
    return calls.call(socket_path(call.config), request, call.limits.delegate)


PLUGIN = Dhcp()
