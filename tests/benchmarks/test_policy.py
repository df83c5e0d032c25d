"""The lines about NetworkPolicies: a small cluster in a namespace of its own, and two pods that talk."""

from benchmarks import policy


def test_a_pod_comes_to_a_node_that_knows_others_and_its_time_is_taken():
    with policy._node() as node:
        cluster = policy.Cluster(node, 40, pods=200)
        assert cluster.admit(policy.pod(1000)) > 0
        assert cluster.content.locals.keys().isdisjoint({"pod-1000"})
        assert cluster.kernel.content() == cluster.content.desired().sets
        cluster.close()


def test_pods_talk_among_policies_that_allow_it():
    with policy._path(20) as (client, server):
        assert policy._throughput(client, server, 0.05) > 0
        assert policy._connections(client, server, 0.05) > 0
