"""Pods with claims before nodes: which one, what is written, and what is reported when none fits."""

import msgspec
import pytest

from podwire.objects import nodes
from podwire.scheduler import Chosen, Unschedulable, choose, pod_info
from podwire.scheduler.claims import dynamic_resources
from podwire.scheduler.framework import ClusterEvent
from podwire.scheduler.snapshot import Snapshot

A = 'device.attributes["net.example.com"]'
LARGE = f"{A}.mtu >= 9000"


def pod_of(*names, generated=(), status=()):
    entries = [{"name": name, "resourceClaimName": name} for name in names]
    entries += [{"name": item, "resourceClaimTemplateName": item} for item in generated]
    return pod_info.read(
        {
            "metadata": {"name": "web", "namespace": "default", "uid": "uid-web"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "resourceClaims": entries},
            "status": {"resourceClaimStatuses": list(status)},
        }
    )


def snapshot_of(claim_cache, *names):
    snapshot = Snapshot()
    for name in names or ("n1",):
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        snapshot.put_node(nodes.read({"metadata": {"name": name}, "status": {"allocatable": allocatable}}))
    snapshot.claims = claim_cache
    return snapshot


def reported(found):
    """The message without the counts and the outcome of preemption."""
    assert isinstance(found, Unschedulable)
    return found.message.partition(" preemption: ")[0].partition(": ")[2]


def test_a_pod_goes_where_its_devices_are(words):
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a", mtu=1500)]), words.slice("n2", [words.device("b", mtu=9000)])],
        claims_=[words.claim("nic", words.request("nic", LARGE))],
    )
    assert choose(pod_of("nic"), snapshot_of(claim_cache, "n1", "n2")) == Chosen("n2")


def test_a_pod_follows_a_claim_that_has_its_devices_already(words):
    only = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    status = words.allocated("b", node="n2")
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    claim_cache = words.claim_cache(claims_=[words.claim("nic", status=status)])
    assert choose(pod_of("nic"), snapshot_of(claim_cache, "n1", "n2")) == Chosen("n2")
    assert (
        reported(choose(pod_of("nic"), snapshot_of(claim_cache, "n1"))) == "1 resourceclaim not available on the node."
    )
    [decisions] = dynamic_resources.decide_claims(pod_of("nic"), snapshot_of(claim_cache, "n2"), "n2")
    assert decisions.allocation is None


TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("expression", "given", "why"),
    [
        pytest.param(LARGE, {"mtu": 1500}, "mtu 1500 < 9000", id="too small a number"),
        pytest.param(f"9000 <= {A}.mtu", {"mtu": 1500}, "mtu 1500 < 9000", id="written the other way round"),
        pytest.param(f'{A}.kind == "pci"', {"kind": "veth"}, "kind veth != pci", id="another text"),
        pytest.param(f'{A}.kind != "veth"', {"kind": "veth"}, "kind veth == veth", id="an unwanted text"),
        pytest.param(f"{A}.rdma", {"rdma": False}, "rdma is false", id="a boolean"),
        pytest.param(f"!{A}.virtual", {"virtual": True}, "virtual is true", id="an unwanted boolean"),
        pytest.param(f"{A}.rdma && {LARGE}", {"rdma": True, "mtu": 68}, "mtu 68 < 9000", id="the second condition"),
        pytest.param('device.driver == "gpu.example.com"', {}, "driver net.example.com != gpu.example.com",
                     id="the driver"),
        pytest.param('device.capacity["net.example.com"].bandwidth.compareTo(quantity("10Gi")) >= 0',
                     {"capacity": {"bandwidth": "1Gi"}}, "bandwidth 1Gi < 10Gi", id="a capacity"),
        pytest.param(f'{A}.kind.startsWith("p")', {"kind": "veth"}, f'does not match {A}.kind.startsWith("p")',
                     id="what has no short form"),
        pytest.param("true", {"taints": [TAINT]}, "has untolerated taint {broken: yes}", id="a taint"),
    ],
)  # fmt: skip
def test_each_device_has_a_reason(words, expression, given, why):
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("eth2", **given)])],
        claims_=[words.claim("nic", words.request("nic", expression))],
    )
    assert reported(choose(pod_of("nic"), snapshot_of(claim_cache))) == (
        f"1 cannot allocate all claims. On n1, claim default/nic, request nic: eth2: {why}."
    )


def test_reasons_name_a_devices_holder_and_the_capacity_left(words):
    shared = words.device("eth3", shared=True, capacity={"bandwidth": "10"})
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("eth2", capacity={"bandwidth": "5"}), shared])],
        claims_=[
            words.claim("nic", words.request(capacity={"requests": {"bandwidth": "5"}})),
            words.claim("db", status=words.allocated("eth2")),
            words.claim("log", status=words.allocated("eth3", shareID="s", consumedCapacity={"bandwidth": "8"})),
        ],
    )
    assert reported(choose(pod_of("nic"), snapshot_of(claim_cache))) == (
        "1 cannot allocate all claims. On n1, claim default/nic, request nic: eth2: held by default/db; "
        "eth3: bandwidth: 2 left < 5, shared by default/log."
    )


def test_reasons_list_only_some_of_many_nodes_and_devices(words):
    names = [f"n{number}" for number in range(5)]
    devices = [words.device(f"d{number}", mtu=1500) for number in range(10)]
    claim_cache = words.claim_cache(
        slices_=[words.slice(name, devices) for name in names],
        claims_=[words.claim("nic", words.request("nic", LARGE))],
    )
    message = reported(choose(pod_of("nic"), snapshot_of(claim_cache, *names)))
    assert message.startswith("5 cannot allocate all claims. On n0, ")
    assert message.endswith("d7: mtu 1500 < 9000; and 2 more. 2 more likewise.")
    assert message.count("On n") == 3


def test_reasons_list_devices_of_the_requested_class_first(words):
    others = [words.device(f"d{number}", mtu=1500) for number in range(10)]
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [*others, words.device("fast", mtu=9000)])],
        claims_=[words.claim("nic", words.request("nic", LARGE)), words.claim("db", status=words.allocated("fast"))],
    )
    message = reported(choose(pod_of("nic"), snapshot_of(claim_cache)))
    assert "request nic: fast: held by default/db; d0: mtu 1500 < 9000; " in message


def test_mutually_exclusive_requests_are_reported(words):
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a")])],
        claims_=[words.claim("nic", words.request("one"), words.request("two"))],
    )
    assert reported(choose(pod_of("nic"), snapshot_of(claim_cache))).endswith(
        "On n1, default/nic: each request could be met, but not all of them together."
    )


def test_the_last_alternative_gives_the_reason(words):
    either = {
        "name": "nic",
        "firstAvailable": [words.subrequest("fast", LARGE), words.subrequest("slow", f"{A}.mtu >= 1500")],
    }
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a", mtu=68)])], claims_=[words.claim("nic", either)]
    )
    assert reported(choose(pod_of("nic"), snapshot_of(claim_cache))).endswith(
        "claim default/nic, request nic/slow: a: mtu 68 < 1500."
    )


def test_an_invalid_capacity_excludes_only_its_own_device(words):
    devices = [words.device("a", capacity={"bandwidth": "much"}), words.device("b")]
    claim_cache = words.claim_cache(slices_=[words.slice("n1", devices)], claims_=[words.claim("nic")])
    [decisions] = dynamic_resources.decide_claims(pod_of("nic"), snapshot_of(claim_cache), "n1")
    assert [result.device for result in decisions.allocation.devices.results] == ["b"]


def test_an_expression_that_fails_keeps_the_pod_from_every_node(words):
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a", mtu=9000)]), words.slice("n2", [words.device("b")])],
        claims_=[words.claim("nic", words.request("nic", LARGE))],
    )
    assert reported(choose(pod_of("nic"), snapshot_of(claim_cache, "n1", "n2"))) == (
        "request nic: device net.example.com/n2/b: selector #0: runtime error: no such key: mtu."
    )


OWNED = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid-web", "controller": True}


def owned(claim, owner):
    claim["metadata"]["ownerReferences"] = [owner]
    return claim


NAMED = ({"name": "t", "resourceClaimName": "web-t-x"},)


@pytest.mark.parametrize(
    ("status", "owner", "quiet", "why"),
    [
        pytest.param((), None, True, 'pod "default/web": ResourceClaim not created yet', id="not made yet"),
        pytest.param(NAMED, None, True, 'resourceclaim "web-t-x" not found', id="not seen yet"),
        pytest.param(NAMED, {**OWNED, "uid": "else"}, False,
                     "ResourceClaim default/web-t-x was not created for pod default/web (pod is not owner)",
                     id="somebody else's"),
    ],
)  # fmt: skip
def test_only_a_generated_claim_is_waited_for_silently(words, status, owner, quiet, why):
    made = [owned(words.claim("web-t-x"), owner)] if owner else []
    claim_cache = words.claim_cache(claims_=made)
    found = choose(pod_of(generated=["t"], status=status), snapshot_of(claim_cache))
    assert (reported(found), found.quiet, bool(found.retry_on & ClusterEvent.DEVICES)) == (f"{why}.", quiet, True)


def test_a_claim_that_another_pod_is_getting_devices_for_is_waited_for(words):
    claim_cache = words.claim_cache(slices_=[words.slice("n1", [words.device("a")])], claims_=[words.claim("nic")])
    snapshot = snapshot_of(claim_cache)
    claim_cache.reserve("uid-other", dynamic_resources.decide_claims(pod_of("nic"), snapshot, "n1"))
    found = choose(pod_of("nic"), snapshot)
    assert (reported(found), found.quiet) == ("resourceclaim default/nic is in the process of being allocated.", True)
    assert claim_cache.release_pending("uid-other")
    assert choose(pod_of("nic"), snapshot) == Chosen("n1")


def test_nodes_that_offer_an_earlier_alternative_are_preferred(words):
    either = {"name": "nic", "firstAvailable": [words.subrequest("fast", LARGE), words.subrequest("slow")]}
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a", mtu=1500)]), words.slice("n2", [words.device("b", mtu=9000)])],
        claims_=[words.claim("nic", either)],
    )
    snapshot = snapshot_of(claim_cache, "n1", "n2")
    assert dynamic_resources.score(pod_of("nic"), snapshot, snapshot.nodes) == [87, 100]
    assert choose(pod_of("nic"), snapshot) == Chosen("n2")


def config(name, *requests):
    opaque = {"driver": "net.example.com", "parameters": {"name": name}}
    return {"opaque": opaque, **({"requests": list(requests)} if requests else {})}


def test_an_allocation_names_devices_configuration_and_the_node(words):
    requests = [words.request("one"), {"name": "two", "firstAvailable": [
        words.subrequest("fast", "false"), words.subrequest("slow", class_name="other", tolerations=[
            {"key": "broken", "operator": "Exists"}])]}]  # fmt: skip
    configs = [config("all"), config("one", "one"), config("fast", "two/fast"), config("slow", "two/slow"),
               config("two", "two")]  # fmt: skip
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a"), words.device("b", taints=[TAINT])])],
        classes=[words.class_("nic", config=[config("class")]), words.class_("other")],
        claims_=[words.claim("nic", *requests, config=configs)],
    )
    [decisions] = dynamic_resources.decide_claims(pod_of("nic"), snapshot_of(claim_cache), "n1")
    written = msgspec.json.decode(msgspec.json.encode(decisions.allocation))
    place = {"driver": "net.example.com", "pool": "n1"}
    assert written["devices"]["results"] == [
        {"request": "one", **place, "device": "a"},
        {"request": "two/slow", **place, "device": "b", "tolerations": [{"key": "broken", "operator": "Exists"}]},
    ]
    assert [
        (item["source"], item.get("requests", []), item["opaque"]["parameters"]["name"])
        for item in written["devices"]["config"]
    ] == [
        ("FromClass", ["one"], "class"),
        ("FromClaim", [], "all"),
        ("FromClaim", ["one"], "one"),
        ("FromClaim", ["two/slow"], "slow"),
        ("FromClaim", ["two"], "two"),
    ]
    only = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert written["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [only]}]}


def test_shares_have_their_own_ids_and_consumed_capacity(words):
    device = words.device("a", shared=True, capacity={"bandwidth": "10Gi"})
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [device])],
        claims_=[words.claim("nic", words.request(count=2, capacity={"requests": {"bandwidth": "2Gi"}}))],
    )
    [decisions] = dynamic_resources.decide_claims(pod_of("nic"), snapshot_of(claim_cache), "n1")
    results = decisions.allocation.devices.results
    assert [result.consumed_capacity for result in results] == [{"bandwidth": "2Gi"}] * 2
    assert len({result.share_id for result in results}) == 2


RACK = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]}


@pytest.mark.parametrize(
    ("where", "selector"),
    [
        pytest.param({"allNodes": True}, None, id="devices for everybody"),
        pytest.param({"nodeSelector": RACK}, RACK, id="devices of some nodes"),
    ],
)
def test_devices_beyond_one_node_keep_the_claim_as_free_as_they_are(words, where, selector):
    claim_cache = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a")], pool="p", **where)], claims_=[words.claim("nic")]
    )
    snapshot = snapshot_of(claim_cache)
    labelled = {"metadata": {"name": "n1", "labels": {"rack": "r1"}}}
    snapshot.put_node(nodes.read(labelled))
    [decisions] = dynamic_resources.decide_claims(pod_of("nic"), snapshot, "n1")
    assert decisions.allocation.node_selector == selector


def test_a_claim_that_others_use_too_is_not_taken_away_from_them(words):
    only = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    status = words.allocated("b", node="n2")
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    idle = words.claim_cache(claims_=[words.claim("nic", status=status)])
    other = {"resource": "pods", "name": "other", "uid": "uid-other"}
    used = words.claim_cache(claims_=[words.claim("nic", status={**status, "reservedFor": [other]})])
    assert dynamic_resources.to_deallocate(pod_of("nic"), snapshot_of(idle)).name == "nic"
    assert dynamic_resources.to_deallocate(pod_of("nic"), snapshot_of(used)) is None
    assert dynamic_resources.to_deallocate(pod_of("nic"), snapshot_of(idle, "n2")) is None


def test_claim_is_deallocated_only_if_its_pool_is_whole_and_lacks_the_device(words):
    present, gone = words.slice("n1", [words.device("a")]), words.slice("n1", [words.device("b")])
    status = words.allocated("a", node="n1")
    other = {"resource": "pods", "name": "other", "uid": "uid-other"}
    incomplete = {**gone, "spec": {**gone["spec"], "pool": {**gone["spec"]["pool"], "resourceSliceCount": 2}}}
    for slices_, consumers, expected in (
        ([present], [], None),
        ([], [], None),
        ([incomplete], [], None),
        ([gone], [other], None),
        ([gone], [], "nic"),
    ):
        claim = words.claim("nic", status={**status, "reservedFor": consumers})
        claim_cache = words.claim_cache(slices_=slices_, claims_=[claim])
        deallocated = dynamic_resources.to_deallocate(pod_of("nic"), snapshot_of(claim_cache))
        assert (deallocated and deallocated.name) == expected


@pytest.mark.parametrize("resource", ["example.com/nic", "deviceclass.resource.kubernetes.io/nic"])
def test_extended_resource_requests_are_answered_with_a_hint_to_claims(words, resource):
    class_ = words.class_("nic")
    class_["spec"]["extendedResourceName"] = "example.com/nic"
    container = {"name": "c", "image": "i", "resources": {"requests": {resource: "1"}}}
    pod = pod_info.read({"metadata": {"name": "web", "uid": "u"}, "spec": {"containers": [container]}})
    assert reported(choose(pod, snapshot_of(words.claim_cache(classes=[class_])))) == (
        f"1 Insufficient {resource}. {resource} stands for DeviceClass nic: this scheduler gives its devices to "
        "spec.resourceClaims only."
    )
