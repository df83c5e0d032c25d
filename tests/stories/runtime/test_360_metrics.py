"""Statistics of pods' networks, and metrics of containers by cAdvisor's names."""

import time

from podwire.protocols.cri import cri_pb2 as pb
from tests.eventually import eventually_async

UNSOURCED = ("hugetlb", "pressure", "blkio", "fs_reads", "fs_writes", "memory_swap", "spec_memory_swap", "threads_max")
"""Words in names of metrics that some kernels have no source for."""


async def network_of(cri, pod):
    return (await cri("PodSandboxStats", pod_sandbox_id=pod.id)).stats.linux.network


async def test_statistics_have_the_labels_and_annotations_of_the_pod(cri):
    pod = await cri.run(annotations={"colour": "blue"})
    attributes = (await cri("PodSandboxStats", pod_sandbox_id=pod.id)).stats.attributes
    assert dict(attributes.annotations) == {"colour": "blue"}
    assert dict(attributes.labels) == dict(pod.config.labels)


async def test_a_pod_without_containers_has_network_statistics(cri):
    pod = await cri.run()
    network = await network_of(cri, pod)
    assert [row.name for row in network.interfaces] == ["eth0"]
    assert network.default_interface == network.interfaces[0]
    assert network.timestamp > 0


async def test_bytes_and_errors_of_each_interface_are_counted(cri):
    pod = await cri.run()
    other = await cri.run()
    config = cri.container_config()
    config.linux.security_context.capabilities.add_capabilities.append("NET_RAW")
    id_ = await cri.start(pod, config=config)
    before = (await network_of(cri, pod)).default_interface
    await cri.said(id_, f"ping -c 3 -s 500 {other.ip}")
    after = (await network_of(cri, pod)).default_interface
    assert after.tx_bytes.value - before.tx_bytes.value >= 3 * 500
    assert after.rx_bytes.value - before.rx_bytes.value >= 3 * 500
    assert after.HasField("rx_errors")
    assert after.HasField("tx_errors")


async def test_the_network_of_the_node_is_not_a_pods(cri):
    config = cri.pod_config()
    config.linux.security_context.namespace_options.network = pb.NODE
    pod = await cri.run(config)
    await cri.start(pod)
    assert list((await network_of(cri, pod)).interfaces) == []


async def test_a_stopped_pod_has_no_network_statistics(cri):
    pod = await cri.run()
    await cri("StopPodSandbox", pod_sandbox_id=pod.id)
    assert list((await network_of(cri, pod)).interfaces) == []


async def metrics_of(cri, pod):
    (found,) = [row for row in (await cri("ListPodSandboxMetrics")).pod_metrics if row.pod_sandbox_id == pod.id]
    return found


async def test_every_metric_has_help_labels_and_a_value(cri):
    described = {row.name: row for row in (await cri("ListMetricDescriptors")).descriptors}
    assert len(described) == 56
    assert all(row.help and row.label_keys for row in described.values())
    pod = await cri.run()
    config = cri.container_config()
    config.linux.resources.cpu_quota, config.linux.resources.cpu_period = 50_000, 100_000
    config.linux.resources.memory_limit_in_bytes = 64 << 20
    id_ = await cri.start(pod, config=config)
    found = await metrics_of(cri, pod)
    assert [row.container_id for row in found.container_metrics] == [id_]
    values = {row.name: row for row in (*found.metrics, *found.container_metrics[0].metrics)}
    missing = described.keys() - values.keys()
    assert {name for name in missing if not any(word in name for word in UNSOURCED)} == set()
    for name, row in values.items():
        assert len(row.label_values) == len(described[name].label_keys), name
        assert abs(row.timestamp / 1e9 - time.time()) < 60
    assert values["container_spec_cpu_quota"].value.value == 50_000
    assert values["container_spec_memory_limit_bytes"].value.value == 64 << 20
    assert values["container_processes"].value.value >= 1
    assert 0 < values["container_memory_rss"].value.value < 64 << 20
    assert abs(values["container_start_time_seconds"].value.value - time.time()) < 60
    labels = dict(zip(described["container_threads"].label_keys, values["container_threads"].label_values, strict=True))
    about = pod.config.metadata
    assert labels == {
        "pod": about.name,
        "namespace": "default",
        "container": "main",
        "id": id_,
        "image": labels["image"],
    }
    assert list(found.metrics[0].label_values) == [about.name, "default", "POD", pod.id, "", "eth0"]


async def test_processor_time_in_whole_seconds_grows(cri):
    pod = await cri.run()
    await cri.start(pod, "while :; do :; done")

    async def used():
        rows = (await metrics_of(cri, pod)).container_metrics[0].metrics
        (row,) = [row for row in rows if row.name == "container_cpu_usage_seconds_total"]
        assert row.metric_type == pb.COUNTER
        return row.value.value >= 1

    await eventually_async(used)


async def test_open_files_and_sockets_are_counted(cri):
    pod = await cri.run()
    id_ = await cri.start(pod, "nc -l -p 80 -e true & exec sleep 1000")

    async def sockets():
        rows = {row.name: row.value.value for row in (await metrics_of(cri, pod)).container_metrics[0].metrics}
        assert rows["container_file_descriptors"] >= rows["container_sockets"]
        return rows["container_sockets"] == 1 and rows["container_processes"] == 2

    await eventually_async(sockets)
    assert (await cri.status(id_)).state == pb.CONTAINER_RUNNING
