"""Cached pods and their network namespaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.nri import Plugin, pb
from podwire.nri.pod_cache import PodCache, netns_in
from podwire.protocols.nri import methods


def pod(name, netns=""):
    spaces = [pb.LinuxNamespace(type="network", path=netns)] if netns else []
    return pb.PodSandbox(id=name, linux=pb.LinuxPodSandbox(namespaces=spaces))


@pytest.mark.parametrize(
    ("spaces", "found"),
    [
        pytest.param([], "", id="no namespaces"),
        pytest.param([("pid", "/p"), ("network", "/n")], "/n", id="among others"),
        pytest.param([("pid", "/p")], "", id="the host's network"),
        pytest.param([("network", "")], "", id="one without a path"),
    ],
)
def test_the_network_namespace_is_read_from_the_pods_namespaces(spaces, found):
    result = [pb.LinuxNamespace(type=kind, path=path) for kind, path in spaces]
    assert netns_in(pb.PodSandbox(linux=pb.LinuxPodSandbox(namespaces=result))) == found


def test_a_message_takes_precedence_over_the_cache():
    cache = PodCache()
    cache.put(pod("a", "/old"))
    assert (cache.netns_of(pod("a", "/new")), cache.netns_of(pod("a")), cache.netns_of("a")) == (
        "/new",
        "/old",
        "/old",
    )


def test_a_hook_that_changes_its_pod_does_not_change_the_cache():
    cache, reported = PodCache(), pod("a", "/n")
    cache.put(reported)
    reported.Clear()
    assert cache.netns_of("a") == "/n"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.sampled_from(["", "/1", "/2"])),
        st.tuples(st.just("remove"), st.sampled_from("abc"), st.just("")),
    )
)


@given(STEPS, st.sets(st.sampled_from("abc")))
def test_the_cache_holds_the_last_network_of_every_pod_until_it_is_removed(steps, there):
    cache, model = PodCache(), {}
    for step, name, netns in steps:
        if step == "put":
            cache.put(pod(name, netns))
            model[name] = netns or model.get(name, "")
        else:
            cache.remove(name)
            model.pop(name, None)
    assert {name: cache.netns_of(name) for name in "abc"} == {name: model.get(name, "") for name in "abc"}
    missing = cache.missing_in([pod(name) for name in there])
    assert sorted(item.id for item in missing) == sorted(set(model) - there)


class Stops(Plugin):
    """Asks for the network when a pod stops."""

    name = "stops"

    def __init__(self):
        self.saw = []

    async def stop_pod_sandbox(self, pod):
        self.saw.append(self.netns_of(pod))


class Removes(Stops):
    """And when it is removed."""

    async def remove_pod_sandbox(self, pod):
        self.saw.append(self.netns_of(pod))


async def play(peer):
    await peer.ask(methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(pod=pod("a", "/n/a")))
    await peer.ask(methods.STOP_POD_SANDBOX, pb.StopPodSandboxRequest(pod=pod("a")))
    await peer.ask(methods.REMOVE_POD_SANDBOX, pb.RemovePodSandboxRequest(pod=pod("a")))


@pytest.mark.parametrize(("kind", "saw"), [(Stops, ["/n/a"]), (Removes, ["/n/a", "/n/a"])])
async def test_the_network_is_cached_until_the_last_hook_of_a_pod(synchronized, kind, saw):
    plugin = kind()
    async with synchronized(plugin) as peer:
        await play(peer)
        assert plugin.netns_of("a") == ""
    assert plugin.saw == saw


async def test_a_pod_leaves_the_cache_although_the_hook_failed(synchronized):
    class Fails(Stops):
        async def stop_pod_sandbox(self, pod):
            raise OSError("no")

    plugin = Fails()
    async with synchronized(plugin) as peer:
        with pytest.raises(Exception, match="no"):
            await play(peer)
        assert plugin.netns_of("a") == ""


async def test_nothing_is_cached_for_a_plugin_without_stop_hooks(synchronized):
    class Runs(Plugin):
        name = "runs"

        async def run_pod_sandbox(self, pod): ...

    plugin = Runs()
    async with synchronized(plugin) as peer:
        await peer.ask(methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(pod=pod("a", "/n/a")))
        assert plugin.netns_of("a") == ""
