"""A node with pods in their own namespaces, once on a bridge and once by routed links."""

from collections.abc import Iterator

import pytest

from tests.nriplugins.network.policy.support import NodeWithPods


@pytest.fixture(scope="module", params=["bridge", "routed"])
def world(request, tmp_path_factory) -> Iterator[NodeWithPods]:
    made = NodeWithPods(tmp_path_factory.mktemp("world"), request.param)
    yield made
    made.close()
