"""The reconciler when an operation fails; policies are a double here, the rest is real."""

import asyncio

import pytest

from podwire.linux.errors import LinuxError
from podwire.nriplugins.network.kinds import PODS, ROUTES
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.policy.bridges import NotEnforceable
from podwire.nriplugins.network.policy_enforcer import NOT_ENFORCED, PolicyWarning
from podwire.nriplugins.network.ports import Limits
from podwire.nriplugins.network.reconciler import NetworkReconciler
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.protocols.grpc_status import FailedPrecondition
from podwire.protocols.k8sapi.watch import Added, Deleted
from tests.eventually import eventually_async

SOON = 40.0
LIMITS = Limits(retry=0.01)


class Policies:
    """A policy enforcer that records its calls and fails on demand."""

    bridges = None

    def __init__(self):
        self.asked, self.fails, self.warnings = [], None, {}

    def protect(self, sandbox, here, changes):
        self.asked.append(("protect", sandbox.name, [item.name for item in here], len(changes)))
        if self.fails:
            raise self.fails

    def release(self, sandbox):
        self.asked.append(("release", sandbox.name))

    def reconcile(self, here, changes, *, audit):
        self.asked.append(("reconcile", [item.name for item in here], len(changes)))
        if self.fails:
            raise self.fails
        return self.warnings


class Reports:
    """Events and statuses."""

    def __init__(self):
        self.notes, self.selected_by = [], []

    def tell(self, about, type_, reason, message):
        self.notes.append((about.name, reason, message))

    def touch(self, kind, object_):
        self.selected_by.append(object_["metadata"]["name"])

    def concern(self, heads):
        self.selected_by += [head.name for head in heads]


@pytest.fixture
def made():
    policies, reports = Policies(), Reports()
    reconciler = NetworkReconciler(
        enforcer=policies, statuses=reports, events=reports, meter=Meter(), now=lambda: 0.0, limits=LIMITS
    )
    yield reconciler, policies, reports
    reconciler.close()


def sandbox(name="web", **more):
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
        pytest.param(NotEnforceable("bridges do not hand frames on"), [NOT_ENFORCED], id="nothing would filter it"),
        pytest.param(LinuxError(1, "set an element"), [], id="the kernel refuses"),
    ],
)
async def test_a_pod_that_cannot_be_protected_is_refused_and_cleaned_up(made, error, reasons):
    reconciler, policies, reports = made
    policies.fails = error
    with pytest.raises(FailedPrecondition, match=str(error).split(":", maxsplit=1)[0]):
        await reconciler.run_pod(sandbox(), [])
    assert policies.asked == [("protect", "web", [], 0), ("release", "web")]
    assert reconciler.sandboxes == {}
    assert reconciler.refused.keys() == {"u-web"}
    assert [note[1] for note in reports.notes] == reasons
    policies.fails = None
    await reconciler.run_pod(sandbox(), [])
    assert (reconciler.sandboxes.keys(), reconciler.refused) == ({"s-web"}, {})


@pytest.mark.parametrize(("policy", "runs"), [("Fail", False), ("Ignore", True)])
async def test_invalid_resources_fail_closed_or_open_and_are_reported_once(made, policy, runs):
    reconciler, _, reports = made
    reconciler.on_change(ROUTES, Added(route(failurePolicy=policy)))
    if runs:
        await reconciler.run_pod(sandbox(), [])
        reconciler.on_change(ROUTES, Added(route(failurePolicy=policy, table=7)))
        await reconciler.reconcile()
    else:
        with pytest.raises(FailedPrecondition, match=r"PodRoute default/a: spec.routes: Required value"):
            await reconciler.run_pod(sandbox(), [])
    assert reports.notes == [("web", "PodRouteBroken", "PodRoute default/a: spec.routes: Required value")]
    assert "a" in reports.selected_by


async def test_a_resource_created_while_a_pod_starts_is_applied(made):
    reconciler, policies, reports = made
    protect = policies.protect

    def meanwhile(*words):
        protect(*words)
        reconciler.on_change(ROUTES, Added(route(failurePolicy="Ignore")))

    policies.protect = meanwhile
    await reconciler.run_pod(sandbox(), [])
    assert reports.notes == []
    await reconciler.reconcile()
    assert [note[1] for note in reports.notes] == ["PodRouteBroken"]


async def test_changes_are_taken_once_and_in_order(made):
    reconciler, policies, _ = made
    one, two = sandbox("one"), sandbox("two")
    reconciler.on_change(PODS, Added({"metadata": {"uid": "x", "name": "x", "namespace": "default"}}))
    await reconciler.run_pod(one, [])
    await reconciler.run_pod(two, [])
    reconciler.on_change(PODS, Deleted({"metadata": {"uid": "x", "name": "x", "namespace": "default"}}))
    await reconciler.reconcile()
    await reconciler.stop_pod(one)
    assert policies.asked == [
        ("protect", "one", [], 1),
        ("protect", "two", ["one"], 0),
        ("reconcile", ["one", "two"], 1),
        ("release", "one"),
    ]


async def test_nothing_is_applied_before_synchronize_and_the_first_lists(made):
    reconciler, policies, reports = made
    complete = asyncio.Event()
    running = asyncio.ensure_future(reconciler.run(complete))
    try:
        complete.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert policies.asked == []
        policies.warnings = {"u-web": PolicyWarning(NOT_ENFORCED, "why")}
        await reconciler.synchronize_pods([sandbox()], lambda _: None)
        assert await reconciler.caught_up(SOON)
        assert policies.asked[0] == ("reconcile", ["web"], 0)
        assert reports.notes == [("web", NOT_ENFORCED, "why")]
        await reconciler.synchronize_pods([], lambda _: None)
        assert ("release", "web") in policies.asked, "a pod that is gone by the next connection"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_waiting_for_a_pass_times_out(made):
    reconciler, _, _ = made
    assert not await reconciler.caught_up(0.01)


async def test_a_rejected_change_of_the_kernel_is_retried(made):
    reconciler, policies, _ = made
    policies.fails = LinuxError(1, "set an element")
    complete = asyncio.Event()
    complete.set()
    running = asyncio.ensure_future(reconciler.run(complete))
    try:
        await reconciler.synchronize_pods([], lambda _: None)
        await eventually_async(lambda: len(policies.asked) > 2)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
