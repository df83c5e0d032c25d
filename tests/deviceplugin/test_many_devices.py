"""Ten thousand devices in one pool: every change is reported as a whole, and soon."""

import time

import pytest

from podwire.deviceplugin import directory_watch
from podwire.deviceplugin.config import config
from podwire.deviceplugin.inventory import Inventory
from podwire.linux import errors
from podwire.linux.fs import inotify
from tests.eventually import eventually

MANY = 10_000


def test_ten_thousand_entries_follow_their_file(host, record_property):
    path = host.root / "dev" / "thing"
    path.parent.mkdir()
    path.symlink_to("/dev/null")
    host.kubelet.start()
    host.start([{"name": "many", "files": {"paths": [str(path)], "count": MANY}}])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("many")
    assert len(plugin.until(many_0="Healthy", many_9999="Healthy")) == MANY
    begun = time.monotonic()
    path.unlink()
    found = plugin.next()
    took = time.monotonic() - begun
    assert {item.health for item in found.values()} == {"Unhealthy"}
    record_property("milliseconds", round(took * 1000))
    path.symlink_to("/dev/null")
    plugin.until(many_9999="Healthy")
    answer = plugin.allocate(*(f"many-{number}" for number in range(0, MANY, 97)))
    assert [device.host_path for device in answer.devices] == [str(path)]


def test_twenty_pods_that_come_and_go_never_share_a_device(host):
    host.ip("link add br0 up type bridge")
    host.kubelet.start()
    host.start([{"name": "pv", "make": {"kind": "veth", "parent": "br0", "count": 20}}])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("pv")
    names = [f"pv{number}" for number in range(20)]
    plugin.until(**dict.fromkeys(names, "Healthy"))
    for name in names:
        host.kubelet.pods[name] = {"net.podwire.dev/pv": [name]}
        host.move_in(name, host.namespaces.create(name).path)
        plugin.allocate(name)
    for name in names:
        host.namespaces.remove(name)  # as when a pod's namespace ends: virtual links end with it
        del host.kubelet.pods[name]
    eventually(lambda: set(names) <= {item["ifname"] for item in host.ip("link show")})
    eventually(lambda: host.kubelet.plugin("pv").next()["pv19"].health == "Healthy")


def test_flapping_links_are_reported_in_their_final_state(host):
    host.ip("link add nic0 up type veth peer name far0")
    host.ip("link set far0 up")
    host.kubelet.start()
    host.start([{"name": "nics", "interfaces": {"names": ["nic*"]}}])
    host.kubelet.wait_registered()
    plugin = host.kubelet.plugin("nics")
    plugin.until(nic0="Healthy")
    for number in range(50):
        host.ip(f"link set far0 {'up' if number % 2 else 'down'}")
    host.ip("link set far0 down")
    eventually(lambda: host.kubelet.plugin("nics").next()["nic0"].health == "Unhealthy")
    host.ip("link set far0 up")
    eventually(lambda: host.kubelet.plugin("nics").next()["nic0"].health == "Healthy")


class Exhausted(inotify.Inotify):
    def __init__(self) -> None:
        raise errors.OutOfResources(24, "watch files")


async def test_directories_are_looked_at_when_the_kernel_has_no_more_watches(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(inotify, "Inotify", Exhausted)
    result = directory_watch.changes([tmp_path], poll=0.001)
    for _ in range(3):
        await anext(result)
    await result.aclose()
    assert [record.message for record in caplog.records] == ["cannot use inotify; polling directories"]


async def test_a_directory_that_comes_later_is_waited_for(tmp_path):
    result = directory_watch.changes([tmp_path / "a" / "b"], poll=60.0)
    await anext(result)
    (tmp_path / "a").mkdir()
    await anext(result)
    (tmp_path / "a" / "b").mkdir()
    await anext(result)
    (tmp_path / "a" / "b" / "c").touch()
    await anext(result)
    await result.aclose()


@pytest.mark.parametrize("late", [False, True], ids=["asked after", "asked before"])
def test_device_allocated_after_a_list_request_is_not_freed_by_its_answer(host, tmp_path, late):
    pools = {"pools": [{"name": "tun", "files": {"paths": ["/dev/null"]}, "cdi": True}]}
    stock = Inventory(config(pools), state=tmp_path / "state", sysfs=tmp_path, cdi=tmp_path / "cdi")
    try:
        stock.look()
        early = stock.asks()
        stock.allocate("tun", ["tun-0"])
        stock.held_by_pods({}, early if late else stock.asks())
        assert len(list((tmp_path / "cdi").iterdir())) == (1 if late else 0)
    finally:
        stock.close()


def test_older_list_answer_does_not_restore_a_link_that_left_since(host, tmp_path):
    host.ip("link add nic0 type veth peer name far0")
    pools = {"pools": [{"name": "nics", "interfaces": {"names": ["nic*"]}}]}
    stock = Inventory(config(pools), state=tmp_path / "state", sysfs=tmp_path, cdi=tmp_path / "cdi")
    try:
        stock.look()
        early = stock.asks()
        host.move_in("nic0", host.namespaces.create("pod").path)
        stock.look()
        stock.held_by_pods({}, early)
        assert stock.devices("nics")[0].healthy
        stock.held_by_pods({}, stock.asks())
        assert stock.devices("nics")[0].why == "nic0 is not on this host, and no pod has it"
    finally:
        stock.close()
