"""What the keeper does when something cannot be done; policies are a double here, the rest is real."""

import asyncio

import pytest

from podwire.linux.errors import LinuxError
from podwire.nriplugins.network import reconciler as keeping
from podwire.nriplugins.network.kinds import PODS, ROUTES
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.policy.bridges import NotJudged
from podwire.nriplugins.network.policy_enforcer import NOT_ENFORCED, PolicyWarning
from podwire.nriplugins.network.reconciler import NetworkReconciler
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.protocols.grpc_status import FailedPrecondition
from podwire.protocols.k8sapi.watch import Added, Deleted

SOON = 40.0


class Policies:
    """Does as it is told, and keeps what it was asked."""

    bridges = None

    def __init__(self):
        self.asked, self.fails, self.remarks = [], None, {}

    def protect(self, local, here, changes):
        self.asked.append(("protect", local.name, [each.name for each in here], len(changes)))
        if self.fails:
            raise self.fails

    def release(self, local):
        self.asked.append(("release", local.name))

    def settle(self, here, changes, *, audit):
        self.asked.append(("settle", [each.name for each in here], len(changes)))
        if self.fails:
            raise self.fails
        return self.remarks


class Told:
    """Events and statuses."""

    def __init__(self):
        self.notes, self.concerned = [], []

    def tell(self, about, type_, reason, message):
        self.notes.append((about.name, reason, message))

    def touch(self, kind, object_):
        self.concerned.append(object_["metadata"]["name"])

    def concern(self, heads):
        self.concerned += [each.name for each in heads]


@pytest.fixture
def made():
    policies, told = Policies(), Told()
    keeper = NetworkReconciler(policing=policies, statuses=told, events=told, meter=Meter(), now=lambda: 0.0)
    yield keeper, policies, told
    keeper.close()


def local(name="web", **more):
    given = {"labels": {"app": "web"}, "annotations": {}, **more}
    return Sandbox(
        id=f"s-{name}", uid=f"u-{name}", namespace="default", name=name, netns="/none", ips=("10.1.0.2",), **given
    )


def route(**spec):
    meta = {"name": "a", "namespace": "default", "uid": "r1"}
    return {"kind": "PodRoute", "metadata": meta, "spec": {"podSelector": {}, "routes": [], **spec}}


@pytest.mark.parametrize(
    ("error", "reasons"),
    [
        pytest.param(NotJudged("bridges do not hand frames on"), [NOT_ENFORCED], id="nobody would judge it"),
        pytest.param(LinuxError(1, "set an element"), [], id="the kernel refuses"),
    ],
)
async def test_a_pod_that_cannot_be_protected_is_refused_and_nothing_of_it_stays(made, error, reasons):
    keeper, policies, told = made
    policies.fails = error
    with pytest.raises(FailedPrecondition, match=str(error).split(":", maxsplit=1)[0]):
        await keeper.admit(local(), [])
    assert policies.asked == [("protect", "web", [], 0), ("release", "web")]
    assert keeper.locals == {}
    assert keeper.refused.keys() == {"u-web"}
    assert [each[1] for each in told.notes] == reasons
    policies.fails = None
    await keeper.admit(local(), [])
    assert (keeper.locals.keys(), keeper.refused) == ({"s-web"}, {})


@pytest.mark.parametrize(("policy", "runs"), [("Fail", False), ("Ignore", True)])
async def test_nonsense_fails_closed_or_open_and_says_so_once(made, policy, runs):
    keeper, _, told = made
    keeper.heard(ROUTES, Added(route(failurePolicy=policy)))
    if runs:
        await keeper.admit(local(), [])
        keeper.heard(ROUTES, Added(route(failurePolicy=policy, table=7)))
        await keeper.look()
    else:
        with pytest.raises(FailedPrecondition, match=r"PodRoute default/a: spec.routes: Required value"):
            await keeper.admit(local(), [])
    assert told.notes == [("web", "PodRouteBroken", "PodRoute default/a: spec.routes: Required value")]
    assert "a" in told.concerned


async def test_a_resource_that_comes_while_a_pod_is_admitted_is_not_missed(made):
    keeper, policies, told = made
    protect = policies.protect

    def meanwhile(*words):
        protect(*words)
        keeper.heard(ROUTES, Added(route(failurePolicy="Ignore")))

    policies.protect = meanwhile
    await keeper.admit(local(), [])
    assert told.notes == []
    await keeper.look()
    assert [each[1] for each in told.notes] == ["PodRouteBroken"]


async def test_changes_are_taken_once_and_in_order(made):
    keeper, policies, _ = made
    one, two = local("one"), local("two")
    keeper.heard(PODS, Added({"metadata": {"uid": "x", "name": "x", "namespace": "default"}}))
    await keeper.admit(one, [])
    await keeper.admit(two, [])
    keeper.heard(PODS, Deleted({"metadata": {"uid": "x", "name": "x", "namespace": "default"}}))
    await keeper.look()
    await keeper.dismiss(one)
    assert policies.asked == [
        ("protect", "one", [], 1),
        ("protect", "two", ["one"], 0),
        ("settle", ["one", "two"], 1),
        ("release", "one"),
    ]


async def test_nothing_is_set_before_the_runtime_has_told_of_its_pods_and_the_api_server_of_everything(made):
    keeper, policies, told = made
    complete = asyncio.Event()
    running = asyncio.ensure_future(keeper.run(complete))
    try:
        complete.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert policies.asked == []
        policies.remarks = {"u-web": PolicyWarning(NOT_ENFORCED, "why")}
        await keeper.resume([local()], lambda _: None)
        assert await keeper.caught_up(SOON)
        assert policies.asked[0] == ("settle", ["web"], 0)
        assert told.notes == [("web", NOT_ENFORCED, "why")]
        await keeper.resume([], lambda _: None)
        assert ("release", "web") in policies.asked, "a pod that is gone by the next connection"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_whoever_asks_is_told_when_a_pass_takes_too_long(made):
    keeper, _, _ = made
    assert not await keeper.caught_up(0.01)


async def test_a_kernel_that_refuses_changes_is_asked_again(made, monkeypatch):
    keeper, policies, _ = made
    monkeypatch.setattr(keeping, "RETRY", 0.01)
    policies.fails = LinuxError(1, "set an element")
    complete = asyncio.Event()
    complete.set()
    running = asyncio.ensure_future(keeper.run(complete))
    try:
        await keeper.resume([], lambda _: None)
        async with asyncio.timeout(SOON):
            while True:
                if len(policies.asked) > 2:
                    break
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
