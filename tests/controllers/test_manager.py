"""The controllers at work on a real API server: beside its store, and over HTTPS."""

import asyncio
import contextlib
import time

import pytest

from podwire import controllers
from podwire.cluster.apiserver import Options, running
from podwire.cluster.apiserver_controllers import StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import CONFIG_MAPS, DEFINITIONS, EVENTS, NAMESPACES, PODS, SERVICE_ACCOUNTS, builtin
from podwire.controllers.limits import Limits
from podwire.controllers.manager import Dispatcher
from podwire.controllers.metadata import Metadata, PartialObject, resource_of
from podwire.controllers.ports import Present
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, Propagation, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.transports.clock import SystemClock
from podwire.transports.credentials import load
from podwire.transports.http_client import connect
from tests.eventually import eventually_async

SECRETS = builtin("v1", "Secret")
THINGS = Kind(group="example.com", version="v1", resource="things", kind="Thing")
ADMIN = Certificate("admin", ("system:masters",))


class Counted:
    """The controllers' client, which counts what they ask."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.calls: list[str] = []

    def __getattr__(self, name: str):
        self.calls.append(name)
        return getattr(self._client, name)


class Noting:
    """A controller that records the changes that it receives."""

    def __init__(self, *kinds: Kind) -> None:
        self.resources = frozenset(map(resource_of, kinds)) or None
        self.names: list[str] = []

    def on_change(self, before, now) -> None:
        self.names.append((now or before).name)


def test_a_controller_receives_events_of_its_resources_only():
    everything, of_secrets = Noting(), Noting(SECRETS)
    dispatcher = Dispatcher(Graph(), None, Limits())
    dispatcher.add([everything, of_secrets])
    secret, pod = (PartialObject(kind, Metadata(name=kind.resource, uid=kind.resource)) for kind in (SECRETS, PODS))

    for seen in (secret, pod, secret):
        dispatcher.notify(Present(seen))

    assert everything.names == ["secrets", "pods", "secrets"]
    assert of_secrets.names == ["secrets", "secrets"]


@pytest.fixture
async def server(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        yield server


@pytest.fixture
def api(server):
    """A client of the test's own."""
    return Client(LoopbackHttp(server.assembled.server.handle, ADMIN))


@pytest.fixture(params=["store", "https"])
async def parts(request, server):
    """The client and the feed that the controllers are given."""
    if request.param == "store":
        client = Client(LoopbackHttp(server.assembled.server.handle, ADMIN))
        yield Counted(client), StoreFeed(server.assembled.engine.store, server.assembled.engine.registry)
    else:
        async with connect(load(server.kubeconfig)) as http:
            client = Client(http)
            yield Counted(client), controllers.MetadataInformer(client)


@contextlib.asynccontextmanager
async def at_work(parts, **options):
    client, feed = parts
    task = asyncio.create_task(controllers.run(client, feed, SystemClock(), root_ca="PEM", **options))
    try:
        yield client
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def working(parts, api):
    async with at_work(parts) as client:
        await present(api, CONFIG_MAPS, "kube-root-ca.crt", "default")
        yield client


async def find(api, kind, name, namespace="default"):
    try:
        return await api.get(kind, name, namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


async def present(api, kind, name, namespace="default"):
    return await eventually_async(lambda: find(api, kind, name, namespace))


async def absent(api, kind, name, namespace="default"):
    async def check():
        return await find(api, kind, name, namespace) is None

    await eventually_async(check)


async def make(api, kind, name, *owners, namespace="default", **metadata):
    """An object of a simple kind, owned by others with blocking references."""
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    meta = {"name": name, "namespace": namespace, "ownerReferences": references, **metadata}
    return await api.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta})


async def settled(client) -> None:
    """Until the controllers have asked nothing for a while."""

    async def quiet() -> bool:
        before = len(client.calls)
        await asyncio.sleep(0.1)
        return len(client.calls) == before

    await eventually_async(quiet)


def owners_of(object_) -> list[str]:
    return [reference["name"] for reference in object_["metadata"].get("ownerReferences", [])]


async def test_dependents_are_deleted_recursively_with_their_owner(working, api):
    grandmother = await make(api, CONFIG_MAPS, "grandmother")
    mother = await make(api, SECRETS, "mother", grandmother)
    await make(api, CONFIG_MAPS, "child", mother)
    await make(api, CONFIG_MAPS, "stranger")
    await api.delete(CONFIG_MAPS, "grandmother", "default")
    await absent(api, CONFIG_MAPS, "child")
    await absent(api, SECRETS, "mother")
    assert await find(api, CONFIG_MAPS, "stranger")


async def test_a_dependent_with_another_owner_stays_and_loses_the_deleted_owner(working, api):
    one, two = await make(api, CONFIG_MAPS, "one"), await make(api, CONFIG_MAPS, "two")
    await make(api, SECRETS, "child", one, two)
    await api.delete(CONFIG_MAPS, "one", "default")

    async def forgotten():
        return owners_of(await api.get(SECRETS, "child", "default")) == ["two"]

    await eventually_async(forgotten)


async def test_in_the_foreground_the_owner_goes_last(working, api):
    owner = await make(api, CONFIG_MAPS, "owner")
    await make(api, SECRETS, "free", owner)
    held = await make(api, SECRETS, "held", owner, finalizers=["example.com/hold"])
    await api.delete(CONFIG_MAPS, "owner", "default", propagation=Propagation.FOREGROUND)
    await absent(api, SECRETS, "free")
    await settled(working)
    assert await find(api, CONFIG_MAPS, "owner")
    await api.patch(SECRETS, "held", {"metadata": {"finalizers": None}}, "default")
    await absent(api, CONFIG_MAPS, "owner")
    await absent(api, SECRETS, held["metadata"]["name"])


async def test_orphans_stay_without_their_owner(working, api):
    owner = await make(api, CONFIG_MAPS, "owner")
    await make(api, SECRETS, "child", owner)
    await api.delete(CONFIG_MAPS, "owner", "default", propagation=Propagation.ORPHAN)
    await absent(api, CONFIG_MAPS, "owner")
    assert owners_of(await api.get(SECRETS, "child", "default")) == []


@pytest.mark.parametrize("lie", ["uid", "name", "namespace"])
async def test_a_reference_to_an_owner_that_never_was_does_not_keep_an_object(working, api, lie):
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    owner = await make(api, CONFIG_MAPS, "owner", namespace="other" if lie == "namespace" else "default")
    if lie != "namespace":
        owner["metadata"][lie] = "another"
    await make(api, SECRETS, "child", owner)
    await absent(api, SECRETS, "child")


async def test_an_owner_of_a_kind_that_is_not_served_keeps_its_dependents(working, api):
    ghost = {"apiVersion": "example.com/v1", "kind": "Ghost", "metadata": {"name": "x", "uid": "u"}}
    await make(api, SECRETS, "child", ghost)
    await settled(working)
    assert await find(api, SECRETS, "child")


@pytest.mark.parametrize("propagation", [Propagation.BACKGROUND, Propagation.FOREGROUND])
async def test_owners_in_a_circle_all_go_and_nothing_spins(working, api, propagation):
    one = await make(api, CONFIG_MAPS, "one")
    two = await make(api, CONFIG_MAPS, "two", one)
    three = await make(api, CONFIG_MAPS, "three", two)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "three", "uid": three["metadata"]["uid"]}
    patch = {"metadata": {"ownerReferences": [{**reference, "blockOwnerDeletion": True}]}}
    await api.patch(CONFIG_MAPS, "one", patch, "default")
    await settled(working)
    working.calls.clear()
    await api.delete(CONFIG_MAPS, "one", "default", propagation=propagation)
    for name in ("one", "two", "three"):
        await absent(api, CONFIG_MAPS, name)
    await settled(working)
    assert len(working.calls) < 40


async def test_an_object_that_owns_itself_does_not_spin(working, api):
    one = await make(api, CONFIG_MAPS, "one")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": one["metadata"]["uid"]}
    await api.patch(CONFIG_MAPS, "one", {"metadata": {"ownerReferences": [reference]}}, "default")
    await api.delete(CONFIG_MAPS, "one", "default", propagation=Propagation.FOREGROUND)
    await absent(api, CONFIG_MAPS, "one")
    await settled(working)


async def test_orphans_from_before_the_start_are_collected(parts, api):
    owner = await make(api, CONFIG_MAPS, "owner")
    waiting = await make(api, CONFIG_MAPS, "waiting")
    await make(api, SECRETS, "child", owner)
    await make(api, SECRETS, "blocking", waiting)
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}})
    await api.delete(NAMESPACES, "ending")
    await api.delete(CONFIG_MAPS, "owner", "default")
    await api.delete(CONFIG_MAPS, "waiting", "default", propagation=Propagation.FOREGROUND)
    async with at_work(parts):
        await absent(api, SECRETS, "child")
        await absent(api, SECRETS, "blocking")
        await absent(api, CONFIG_MAPS, "waiting")
        await absent(api, NAMESPACES, "ending", "")


async def test_a_crowd_of_dependents_goes(working, api):
    owner = await make(api, CONFIG_MAPS, "owner")
    for number in range(300):
        await make(api, SECRETS, f"child-{number}", owner)
    await api.delete(CONFIG_MAPS, "owner", "default")

    async def all_gone():
        return not (await api.list(SECRETS, Scope(namespace="default"))).items

    await eventually_async(all_gone, 20)


async def test_a_new_namespace_gets_its_service_account_and_the_root_ca(working, api):
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    await present(api, SERVICE_ACCOUNTS, "default", "dev")
    assert (await present(api, CONFIG_MAPS, "kube-root-ca.crt", "dev"))["data"] == {"ca.crt": "PEM"}


async def test_both_come_back_when_they_are_deleted_or_changed(working, api):
    before = await present(api, SERVICE_ACCOUNTS, "default")
    await api.delete(SERVICE_ACCOUNTS, "default", "default")
    await api.patch(CONFIG_MAPS, "kube-root-ca.crt", {"data": {"ca.crt": "forged"}}, "default")

    async def renewed():
        account = await find(api, SERVICE_ACCOUNTS, "default")
        return account and account["metadata"]["uid"] != before["metadata"]["uid"]

    async def true_again():
        return (await api.get(CONFIG_MAPS, "kube-root-ca.crt", "default"))["data"] == {"ca.crt": "PEM"}

    await eventually_async(renewed)
    await eventually_async(true_again)


async def test_a_deleted_namespace_takes_all_its_content_with_it(working, api):
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    await present(api, CONFIG_MAPS, "kube-root-ca.crt", "dev")
    for number in range(3):
        await make(api, SECRETS, f"s{number}", namespace="dev")
    await api.delete(NAMESPACES, "dev")
    await absent(api, NAMESPACES, "dev", "")
    for kind in (SECRETS, CONFIG_MAPS, SERVICE_ACCOUNTS):
        assert not (await api.list(kind, Scope(namespace="dev"))).items


async def test_a_namespace_reports_its_blockers_and_is_deleted_after_them(working, api):
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    await make(api, SECRETS, "held", namespace="dev", finalizers=["example.com/hold"])
    await api.delete(NAMESPACES, "dev")

    async def explained():
        status = (await api.get(NAMESPACES, "dev"))["status"]
        rows = {condition["type"]: condition["message"] for condition in status.get("conditions", ())}
        remaining = rows.get("NamespaceFinalizersRemaining", "")
        return status["phase"] == "Terminating" and "example.com/hold in 1 resource instances" in remaining

    await eventually_async(explained)
    await settled(working)
    await api.patch(SECRETS, "held", {"metadata": {"finalizers": None}}, "dev")
    await absent(api, NAMESPACES, "dev", "")


async def test_pods_leave_a_namespace_before_everything_else(working, api):
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    await present(api, SERVICE_ACCOUNTS, "default", "dev")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "dev", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    await api.create(pod)
    await make(api, SECRETS, "needed", namespace="dev")
    await api.delete(NAMESPACES, "dev")

    async def pod_is_going():
        return (await api.get(PODS, "web", "dev"))["metadata"].get("deletionTimestamp")

    await eventually_async(pod_is_going)
    await settled(working)
    assert await find(api, SECRETS, "needed", "dev")
    await api.patch(PODS, "web", {"metadata": {"finalizers": None}}, "dev")
    await absent(api, NAMESPACES, "dev", "")


def definition() -> dict:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.fixture
async def things(api):
    """Custom things are served."""
    await api.create(definition())
    api.learn([THINGS])

    async def served():
        try:
            await api.list(THINGS)
        except ApiError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            return False
        return True

    await eventually_async(served)


async def test_kinds_that_come_later_are_collected_too(working, things, api):
    owner = await make(api, THINGS, "owner")
    await make(api, SECRETS, "child", owner)
    await make(api, THINGS, "thing", owner)
    await settled(working)
    await api.delete(THINGS, "owner", "default")
    await absent(api, SECRETS, "child")
    await absent(api, THINGS, "thing")


async def test_a_deleted_definition_takes_its_instances_with_it(working, things, api):
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    for namespace in ("default", "dev"):
        await make(api, THINGS, "thing", namespace=namespace)
    await make(api, THINGS, "held", finalizers=["example.com/hold"])
    await api.delete(DEFINITIONS, "things.example.com")
    await absent(api, THINGS, "thing", "dev")
    await absent(api, THINGS, "thing", "default")

    async def explained():
        rows = (await api.get(DEFINITIONS, "things.example.com"))["status"]["conditions"]
        return any(row["type"] == "Terminating" and row["status"] == "True" for row in rows)

    await eventually_async(explained)
    await settled(working)
    await api.patch(THINGS, "held", {"metadata": {"finalizers": None}}, "default")
    await absent(api, DEFINITIONS, "things.example.com", "")


async def test_a_namespace_with_custom_things_goes(working, things, api):
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    await make(api, THINGS, "thing", namespace="dev")
    await api.delete(NAMESPACES, "dev")
    await absent(api, NAMESPACES, "dev", "")


def event(name: str, last: float) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "x"},
        "type": "Normal",
        "reason": "Tested",
        "lastTimestamp": rfc3339(last),
    }


async def test_events_are_forgotten_after_their_time_unless_they_are_repeated(parts, api):
    async with at_work(parts, limits=Limits(event_ttl=0.5)):
        repeated = time.time() + 2
        await api.create(event("repeated", repeated))
        await api.create(event("once", time.time()))
        await absent(api, EVENTS, "once")
        remains = await find(api, EVENTS, "repeated")
        assert remains or time.time() > repeated, "a busy machine may take longer than the event lives"
        await absent(api, EVENTS, "repeated")


async def test_controllers_at_rest_ask_nothing(working):
    await settled(working)
    working.calls.clear()
    await asyncio.sleep(0.5)
    assert working.calls == []


@pytest.mark.parametrize("name", ["serviceaccount-controller", "root-ca-certificate-publisher-controller"])
async def test_the_account_and_the_root_certificate_have_controllers_of_their_own(parts, api, name):
    kinds = [(SERVICE_ACCOUNTS, "default"), (CONFIG_MAPS, "kube-root-ca.crt")]
    created, missing = kinds if name == "serviceaccount-controller" else reversed(kinds)
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    async with at_work(parts, names={name}):
        await present(api, *created, "dev")
        assert await find(api, *missing, "dev") is None
