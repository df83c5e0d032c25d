"""ipvlan: a link of the pod with the MAC address of a link of the host, on which it is stacked.

Chained behind a plugin without `ipam` of its own, it takes the addresses of `prevResult`, and its only interface as the
master if none is named.
"""

from podwire.cniplugins.order import declare_steps
from podwire.cniplugins.own_link import OwnLinkPlugin, Settings, parse_shared
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare
from podwire.linux.values import Ipvlan as NewIpvlan
from podwire.linux.values import Link, NewLink
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import taken

MADE = declare("cni.ipvlan-made", "the link exists in its master's namespace, and is not moved to the pod")
CONNECTED = declare("cni.ipvlan-connected", "the pod has its link, without addresses")
MODES = ("l2", "l3", "l3s")


class Ipvlan(OwnLinkPlugin):
    name = "ipvlan"
    prefix = "ipvl"
    points = declare_steps(name)
    made, connected = MADE, CONNECTED

    def parse(self, call: Call) -> Settings:
        settings = parse_shared(call.config)._replace(mode=taken(call.config.raw, "mode", str, "") or MODES[0])
        if settings.mode not in MODES:
            message = f'unknown ipvlan mode: "{settings.mode}"'
            raise CniError(Code.BAD_CONFIG, message, f"mode: {settings.mode!r} must be one of {', '.join(MODES)}")
        previous = call.config.previous() if call.invocation.command == "ADD" else None
        if settings.master or previous is None:
            return settings
        if len(previous.interfaces) != 1:
            message = f"master: missing, and prevResult has {len(previous.interfaces)} interfaces to take it from"
            raise CniError(Code.BAD_CONFIG, message)
        return settings._replace(master=previous.interfaces[0].name)

    def new_link(self, name: str, parent: int, settings: Settings, alias: str) -> NewLink:
        return NewIpvlan(name, parent, settings.mode, settings.mtu, alias)

    def has_neighbours(self, settings: Settings) -> bool:
        return settings.mode == MODES[0]

    def given_addresses(self, call: Call) -> Result:
        previous = call.config.previous()
        return Result() if previous is None else Result(ips=previous.ips, routes=previous.routes)

    def check_link(self, link: Link, settings: Settings) -> None:
        expect(link.mode == settings.mode, f"{link.name} has the mode {link.mode}, expected {settings.mode}")


PLUGIN = Ipvlan()
