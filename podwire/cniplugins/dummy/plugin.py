"""dummy: a link of the pod that drops what is sent to it, for addresses that only the pod itself uses."""

from podwire.cniplugins.order import declare_steps
from podwire.cniplugins.own_link import OwnLinkPlugin, Settings
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare
from podwire.linux.values import Dummy as NewDummy
from podwire.linux.values import NewLink

MADE = declare("cni.dummy-made", "the link exists, without addresses")
CONNECTED = declare("cni.dummy-connected", "the pod has its link, without addresses")


class Dummy(OwnLinkPlugin):
    name = "dummy"
    prefix = "dmmy"
    points = declare_steps(name)
    made, connected = MADE, CONNECTED
    has_master = False

    def parse(self, call: Call) -> Settings:
        return Settings()

    def new_link(self, name: str, parent: int, settings: Settings, alias: str) -> NewLink:
        return NewDummy(name, settings.mtu, alias)

    def has_neighbours(self, settings: Settings) -> bool:
        return False


PLUGIN = Dummy()
