"""vlan: a link of the pod for the frames of a host's link that have one VLAN tag. A master has one for each tag."""

from podwire.cniplugins.order import declare_steps
from podwire.cniplugins.own_link import OwnLinkPlugin, Settings, parse_shared
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare
from podwire.linux.values import Link, NewLink
from podwire.linux.values import Vlan as NewVlan
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import taken

MADE = declare("cni.vlan-made", "the link exists in its master's namespace, and is not moved to the pod")
CONNECTED = declare("cni.vlan-connected", "the pod has its link, without addresses")
_LARGEST = 4094


class Vlan(OwnLinkPlugin):
    name = "vlan"
    prefix = "vlan"
    points = declare_steps(name)
    made, connected = MADE, CONNECTED
    connects_first = True

    def parse(self, call: Call) -> Settings:
        settings = parse_shared(call.config)._replace(vlan=taken(call.config.raw, "vlanId", int, 0))
        if not settings.master:
            message = '"master" field is required. It specifies the host interface name to create the VLAN for.'
            raise CniError(Code.BAD_CONFIG, message, "master: missing; it is the link whose tagged frames the pod gets")
        if not 0 <= settings.vlan <= _LARGEST:
            message = f"invalid VLAN ID {settings.vlan} (must be between 0 and {_LARGEST} inclusive)"
            raise CniError(Code.BAD_CONFIG, message, f"vlanId: {settings.vlan} is not between 0 and {_LARGEST}")
        return settings

    def new_link(self, name: str, parent: int, settings: Settings, alias: str) -> NewLink:
        return NewVlan(name, parent, settings.vlan, settings.mtu, alias)

    def check_link(self, link: Link, settings: Settings) -> None:
        expect(link.vlan == settings.vlan, f"{link.name} has the VLAN {link.vlan}, expected {settings.vlan}")


PLUGIN = Vlan()
