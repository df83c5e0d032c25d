"""Pods and their networks, remembered."""

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
def test_a_pods_network_is_read_from_its_namespaces(spaces, found):
    told = [pb.LinuxNamespace(type=kind, path=path) for kind, path in spaces]
    assert netns_in(pb.PodSandbox(linux=pb.LinuxPodSandbox(namespaces=told))) == found


def test_what_a_message_says_goes_before_what_is_remembered():
    memory = PodCache()
    memory.learn(pod("a", "/old"))
    assert (memory.netns_of(pod("a", "/new")), memory.netns_of(pod("a")), memory.netns_of("a")) == (
        "/new",
        "/old",
        "/old",
    )


def test_a_hook_that_changes_its_pod_does_not_change_the_memory():
    memory, told = PodCache(), pod("a", "/n")
    memory.learn(told)
    told.Clear()
    assert memory.netns_of("a") == "/n"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("learn"), st.sampled_from("abc"), st.sampled_from(["", "/1", "/2"])),
        st.tuples(st.just("forget"), st.sampled_from("abc"), st.just("")),
    )
)


@given(STEPS, st.sets(st.sampled_from("abc")))
def test_the_memory_holds_the_last_network_that_was_told_of_every_pod_that_was_not_forgotten(steps, there):
    memory, model = PodCache(), {}
    for step, name, netns in steps:
        if step == "learn":
            memory.learn(pod(name, netns))
            model[name] = netns or model.get(name, "")
        else:
            memory.forget(name)
            model.pop(name, None)
    assert {name: memory.netns_of(name) for name in "abc"} == {name: model.get(name, "") for name in "abc"}
    missing = memory.missing_in([pod(name) for name in there])
    assert sorted(each.id for each in missing) == sorted(set(model) - there)


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
async def test_the_network_is_known_until_the_last_hook_of_a_pod_and_not_after_it(seated, kind, saw):
    plugin = kind()
    async with seated(plugin) as peer:
        await play(peer)
        assert plugin.netns_of("a") == ""
    assert plugin.saw == saw


async def test_a_pod_is_forgotten_although_the_hook_failed(seated):
    class Fails(Stops):
        async def stop_pod_sandbox(self, pod):
            raise OSError("no")

    plugin = Fails()
    async with seated(plugin) as peer:
        with pytest.raises(Exception, match="no"):
            await play(peer)
        assert plugin.netns_of("a") == ""


async def test_nothing_is_remembered_for_who_never_hears_of_a_pods_end(seated):
    class Runs(Plugin):
        name = "runs"

        async def run_pod_sandbox(self, pod): ...

    plugin = Runs()
    async with seated(plugin) as peer:
        await peer.ask(methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(pod=pod("a", "/n/a")))
        assert plugin.netns_of("a") == ""
