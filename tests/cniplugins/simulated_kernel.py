"""A kernel with kinds of links that this one does not have: each is simulated by a kind that it does have.

A simulated link is known by its alias, under any name and in any namespace, as all that the plugins look at is: kind,
mode, tag and table. `tests/linux/net/test_new_kinds.py` compares the messages for the real kinds with the kernel's own
numbers.
"""

import errno

import pytest

import podwire.cniplugins.own_link
import podwire.cniplugins.vrf.plugin
from podwire.linux import errors
from podwire.linux.net import links
from podwire.linux.net.links import KernelLinks
from podwire.linux.values import Bridge, Dummy, Ifb, Ipvlan, Link, Macvlan, NewLink, Vlan, Vrf


def simulate(monkeypatch: pytest.MonkeyPatch) -> None:
    document: dict[str, dict] = {}
    add, parsed = KernelLinks.add, links.parsed

    def simulated_add(self: KernelLinks, new: NewLink) -> None:
        match new:
            case Ipvlan():
                document[new.alias] = {"kind": "ipvlan", "mode": new.mode}
                add(self, Macvlan(new.name, new.parent, mtu=new.mtu, alias=new.alias))
            case Vlan():
                same = {"kind": "vlan", "vlan": new.vlan}
                present = [link for link in self.list() if link.peer == new.parent]
                if any(same.items() <= link._asdict().items() for link in present):
                    raise errors.LinkExists(errno.EEXIST, f"add vlan {new.name}")
                document[new.alias] = same | {"mode": ""}
                add(self, Macvlan(new.name, new.parent, mtu=new.mtu, alias=new.alias))
            case Dummy():
                document[new.alias] = {"kind": "dummy"}
                add(self, Ifb(new.name, mtu=new.mtu, alias=new.alias))
            case Vrf():
                document[new.alias] = {"kind": "vrf", "table": new.table}
                add(self, Bridge(new.name, alias=new.alias, up=new.up))
            case _:
                add(self, new)

    def simulated_parsed(body: bytes) -> Link:
        link = parsed(body)
        return link._replace(**document.get(link.alias, {}) if link.alias else {})

    monkeypatch.setattr(KernelLinks, "add", simulated_add)
    monkeypatch.setattr(links, "parsed", simulated_parsed)
    for module in (podwire.cniplugins.own_link, podwire.cniplugins.vrf.plugin):
        monkeypatch.setattr(module, "supports", lambda _netlink, _kind: True)
