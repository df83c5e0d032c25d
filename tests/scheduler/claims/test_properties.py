"""Invariants of all requests, allocations and releases: no device twice, nothing below zero, all or nothing."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects import claims, nodes, slices
from podwire.objects.device_classes import DeviceClass
from podwire.objects.pods import Metadata
from podwire.scheduler.claims import claim_requests, results
from podwire.scheduler.claims.allocator import Budget, BudgetExceeded, SearchContext, search
from podwire.scheduler.claims.cache import ClaimCache, ClaimDecision

DRIVER, NODE, WHOLE = "d.example.com", nodes.read({"metadata": {"name": "n1"}}), 8
NUMA = 'device.attributes["d.example.com"].numa'

devices = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=5)
subrequests = st.fixed_dictionaries(
    {
        "deviceClassName": st.just("any"),
        "selectors": st.sampled_from(
            [[], [{"cel": {"expression": f"{NUMA} > 0"}}], [{"cel": {"expression": f"{NUMA} == 1"}}]]
        ),
        "allocationMode": st.sampled_from(["ExactCount", "ExactCount", "All"]),
        "count": st.integers(1, 3),
        "capacity": st.sampled_from([{}, {"requests": {"slots": "3"}}, {"requests": {"slots": "5"}}]),
    }
)
requests = st.one_of(
    subrequests.map(lambda subrequest: {"exactly": subrequest}),
    subrequests.map(lambda subrequest: {"exactly": {**subrequest, "adminAccess": True, "capacity": {}}}),
    st.lists(subrequests, min_size=1, max_size=2).map(
        lambda several: {"firstAvailable": [{**each, "name": f"w{at}"} for at, each in enumerate(several)]}
    ),
)
constraints = st.lists(
    st.sampled_from(["matchAttribute", "distinctAttribute"]).map(lambda kind: {kind: f"{DRIVER}/numa"}), max_size=1
)
wanted = st.tuples(st.lists(requests, min_size=1, max_size=2), constraints)
steps = st.lists(
    st.one_of(st.tuples(st.just("pod"), st.lists(wanted, min_size=1, max_size=2)),
              st.tuples(st.sampled_from(["gone", "failed", "written"]), st.integers(0, 9))),
    max_size=8,
)  # fmt: skip


def claim_of(number, asked):
    wants, ties = asked
    named = [{**each, "name": f"r{at}"} for at, each in enumerate(wants)]
    return claims.read(
        {
            "metadata": {"name": f"c{number}", "namespace": "default", "uid": f"u{number}", "resourceVersion": "1"},
            "spec": {"devices": {"requests": named, "constraints": ties}},
        }
    )


class Played:
    """A node's devices, and pods that come, fail, are written and go."""

    def __init__(self, offered):
        self.claim_cache = ClaimCache()
        self.claim_cache.classes["any"] = DeviceClass(metadata=Metadata(name="any"))
        self.offered = offered
        made = [
            {
                "name": f"d{at}",
                "attributes": {"numa": {"int": numa}},
                "capacity": {"slots": {"value": WHOLE}},
                **({"allowMultipleAllocations": True} if shared else {}),
            }
            for at, (numa, shared) in enumerate(offered)
        ]
        spec = {"driver": DRIVER, "nodeName": "n1", "devices": made}
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        self.claim_cache.inventory.put_slice(slices.read({"metadata": {"name": "s"}, "spec": {**spec, "pool": pool}}))
        self.pods = {}
        self.count = 0

    def solve(self, asked):
        context = SearchContext(
            NODE, self.claim_cache.inventory.near("n1"), self.claim_cache.allocated_devices, Budget(2000)
        )
        return search(asked, context)

    def remembered(self, asked):
        """The same as the search, whatever was asked before."""
        near = self.claim_cache.inventory.near("n1")
        return self.claim_cache.search_cache.to(asked).on(NODE, near, self.claim_cache.allocated_devices, Budget(2000))

    def pod(self, asked):
        made = [claim_of(self.count + at, each) for at, each in enumerate(asked)]
        self.count += len(made)
        try:
            to_allocate = [claim_requests.of_claim(item, self.claim_cache.classes) for item in made]
            solved = self.solve(to_allocate)
            assert self.solve(to_allocate) == solved == self.remembered(to_allocate)
        except BudgetExceeded:
            return
        if solved is None:
            return
        self.check_whole(to_allocate, solved)
        ids = map(str, range(1000))
        decisions = [
            ClaimDecision(claim, results.allocation(claim, picks, self.claim_cache.classes, "n1", lambda: next(ids)))
            for claim, picks in zip(made, solved, strict=True)
        ]
        for claim in made:
            self.claim_cache.put_claim(claim)
        self.claim_cache.reserve(f"pod{self.count}", decisions)
        self.pods[f"pod{self.count}"] = decisions

    def check_whole(self, to_allocate, solved):
        for each, picks in zip(to_allocate, solved, strict=True):
            for request in each.requests:
                taken = Counter(pick.subrequest.name for pick in picks if pick.subrequest in request.subrequests)
                assert len(taken) == 1, "one way to meet each request"
                [(name, count)] = taken.items()
                subrequest = next(one for one in request.subrequests if one.name == name)
                assert subrequest.count in (count, 0)

    def some(self, number):
        return sorted(self.pods)[number % len(self.pods)] if self.pods else None

    def written(self, number):
        if name := self.some(number):
            for claim, allocation in ((pod.claim, pod.allocation) for pod in self.pods[name]):
                status = claims.ResourceClaimStatus(allocation=allocation)
                newer = msgspec.structs.replace(claim.metadata, resource_version="2")
                now = msgspec.structs.replace(claim, status=status, metadata=newer)
                self.claim_cache.mark_written(now)
                self.claim_cache.put_claim(claim)  # reported late, as it was before
                self.claim_cache.put_claim(now)

    def failed(self, number):
        if name := self.some(number):
            self.claim_cache.release_pending(name)
            if all(self.claim_cache.claim(pod.claim.ref).allocated == () for pod in self.pods[name]):
                del self.pods[name]

    def gone(self, number):
        if name := self.some(number):
            for item in self.pods.pop(name):
                self.claim_cache.drop_claim(item.claim.ref)

    def check(self):
        alone, amounts = Counter(), Counter()
        for decisions in self.pods.values():
            for result in (one for decision in decisions for one in decision.allocation.devices.results):
                if result.admin_access:
                    continue
                if result.share_id is None:
                    alone[result.identity] += 1
                else:
                    amounts[result.identity] += int(result.consumed_capacity["slots"])
        assert all(count == 1 for count in alone.values()), "no device for two"
        assert all(amount <= WHOLE for amount in amounts.values()), "no capacity below zero"
        assert not alone.keys() & amounts.keys()
        assert self.claim_cache.allocated_devices.held.keys() == alone.keys(), "what is held is what was given"
        for at in range(len(self.offered)):
            identity = (DRIVER, "n1", f"d{at}")
            outcome = self.claim_cache.allocated_devices.shares(identity).get("slots", 0)
            assert outcome == amounts[identity] * 10**9


@given(devices, steps)
def test_no_device_is_allocated_twice_in_any_order_of_events(offered, played):
    world = Played(offered)
    for what, given_ in played:
        getattr(world, what)(given_)
        world.check()


def test_the_world_that_is_played_does_give_devices():
    world = Played([(0, False), (1, True)])
    world.pod([([{"exactly": {"deviceClassName": "any", "count": 1}}], [])])
    assert world.pods
    world.check()
    world.claim_cache.allocated_devices.held.clear()
    with pytest.raises(AssertionError, match="what is held"):
        world.check()
