"""Links that are deleted without waiting."""

import threading
from contextlib import suppress

import pytest

from podwire.linux import errors
from podwire.linux.net.deferred_deletion import delete_link
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Bridge, Veth


@pytest.fixture
def later():
    """Work in threads, all of which end with the test."""
    threads: list[threading.Thread] = []

    def start(work) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def test_link_is_gone_and_its_name_free_on_return(kernel, later):
    with KernelNetwork() as network:
        network.links.add(Bridge("br0", up=True))
        for _ in range(5):
            network.links.add(Veth("v0", "v1", master=network.links.get("br0").ifindex, up=True))
            network.links.change("v1", up=True)
            delete_link(network.links.get("v0").ifindex, later)
            assert [link.name for link in network.links.list()] == ["lo", "br0"]


def test_deletion_works_without_another_thread(kernel):
    with KernelNetwork() as network:
        network.links.add(Veth("v0", "v1"))
        delete_link(network.links.get("v0").ifindex, lambda work: work())
        assert [link.name for link in network.links.list()] == ["lo"]


def test_deletion_of_another_link_is_ignored(kernel, later):
    """Many links go at once, each in its own thread; each returns only when its own is gone."""
    with KernelNetwork() as network:
        for number in range(8):
            network.links.add(Veth(f"a{number}", f"b{number}"))
        indices = [network.links.get(f"a{number}").ifindex for number in range(8)]
        left: list[str] = []

        def delete(index: int) -> None:
            delete_link(index, later)
            with suppress(errors.NoSuchLink):
                left.append(network.links.get(index).name)

        threads = [threading.Thread(target=delete, args=(index,)) for index in indices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert left == []


@pytest.mark.parametrize("way", ["in a thread", "at once"])
def test_missing_link_is_an_error(kernel, later, way):
    with pytest.raises(errors.NoSuchLink):
        delete_link(4711, later if way == "in a thread" else lambda work: work())
