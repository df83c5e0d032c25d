"""Limits of a container in the kernel's units."""

import dataclasses

import pytest

from podwire.kubelet.config.linux_resources import container_limits, overhead_message, pod_limits_message, quota, shares


@pytest.mark.parametrize(
    ("milli", "expected"), [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (10**9, 262144)]
)
def test_shares_of_a_processor(milli, expected):
    assert shares(milli) == expected


@pytest.mark.parametrize(
    ("milli", "expected"), [(0, 0), (1, 1000), (10, 1000), (11, 1100), (500, 50000), (2000, 200000)]
)
def test_a_quota_is_never_less_than_a_millisecond_and_none_without_a_limit(milli, expected):
    assert quota(milli) == expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({}, (2, 0, 0), id="nothing"),
        pytest.param({"requests": {"cpu": "250m", "memory": "64Mi"}}, (256, 0, 0), id="requests alone"),
        pytest.param({"limits": {"cpu": "500m", "memory": "64M"}}, (512, 50000, 64_000_000), id="a limit is a request"),
        pytest.param({"requests": {"cpu": "0"}, "limits": {"cpu": 2}}, (2, 200000, 0), id="unless one says none"),
    ],
)
def test_limits_of_a_container(pod, node, resources, expected):
    asked = pod(container={"resources": resources})
    found = container_limits(asked, asked.spec.containers[0], node)
    assert (found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes) == expected
    assert found.cpu_period == 100000


def test_huge_pages_that_were_not_asked_for_are_none(pod, node):
    sized = dataclasses.replace(node, huge_page_sizes=("1GB", "2MB", "64KB"))
    asked = pod(container={"resources": {"limits": {"hugepages-2Mi": "6Mi"}}})
    found = container_limits(asked, asked.spec.containers[0], sized).hugepage_limits
    assert {item.page_size: item.limit for item in found} == {"1GB": 0, "2MB": 6 << 20, "64KB": 0}


def test_the_oom_score_uses_the_memory_of_the_node(pod, node):
    asked = pod(container={"resources": {"requests": {"memory": "3584Mi"}}})
    main = asked.spec.containers[0]
    assert container_limits(asked, main, node).oom_score_adj == 563
    assert container_limits(asked, main, dataclasses.replace(node, memory_capacity=0)).oom_score_adj == 500


def test_pod_limits_are_the_sum_of_containers_without_overhead(pod):
    cpu = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    second = {"name": "second", "image": "a:1", "resources": cpu}
    asked = pod({"containers": [{**second, "name": "first"}, second], "overhead": {"cpu": "1", "memory": "1Mi"}})
    together, extra = pod_limits_message(asked), overhead_message(asked)
    assert (together.cpu_shares, together.cpu_quota, together.memory_limit_in_bytes) == (2048, 400000, 2 << 30)
    assert (extra.cpu_shares, extra.cpu_quota, extra.memory_limit_in_bytes) == (1024, 100000, 1 << 20)
    assert not overhead_message(pod()).ByteSize()
