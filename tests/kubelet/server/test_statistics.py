"""Statistics of the node and its pods: /stats/summary, /metrics/resource, /metrics/probes, and rates."""

import pytest

from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.probes.worker import ProbedContainer
from podwire.kubelet.server import KubeletMetrics, resource_metrics
from podwire.kubelet.server.disk_usage import DiskMeter, PodDisk, VolumeUsage
from podwire.kubelet.server.rates import Rates
from podwire.kubelet.server.summary import NodeReading, Summary, facts_of
from podwire.linux.fs.trees import TreeUsage
from podwire.linux.net.link_counters import LinkCounters
from podwire.linux.node_usage import FileSystem, NodeUsage, busy_ticks, read_node_usage
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
DISK = FileSystem(capacity=1000, available=400, used=600, inodes=100, inodes_free=70)


def node(time: int = NOW, cpu: int = 0) -> NodeUsage:
    return NodeUsage(
        time=time, boot_time=1_700_000_000, cpu_nanoseconds=cpu, memory_total=8000, memory=5000, working_set=3000,
        rss=2000, page_faults=7, major_page_faults=1, swap_total=100, swap=30, threads=12, threads_max=4000,
        links=(LinkCounters("eth1", 5, 0, 0, 0, 6, 0, 0, 0), LinkCounters("eth0", 1, 0, 2, 0, 3, 0, 4, 0)),
    )  # fmt: skip


def stats(time: int = NOW, cpu: int = 0) -> pb.PodSandboxStats:
    row = pb.PodSandboxStats()
    row.attributes.metadata.MergeFrom(pb.PodSandboxMetadata(name="web", namespace="shop", uid="u1"))
    for used in (row.linux, row.linux.containers.add()):
        used.cpu.timestamp = used.memory.timestamp = time
        used.cpu.usage_core_nano_seconds.value = cpu
        used.memory.working_set_bytes.value = 300
    [container] = row.linux.containers
    container.attributes.id = "c1"
    container.attributes.metadata.name = "main"
    container.writable_layer.used_bytes.value, container.writable_layer.inodes_used.value = 20, 2
    row.linux.network.interfaces.add(name="eth0").rx_bytes.value = 9
    row.linux.process.process_count.value = 4
    return row


def pod_object() -> dict:
    running = {"running": {"startedAt": "2026-11-15T10:00:00Z"}}
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
        "spec": {"containers": [{"name": "main", "image": "i"}], "volumes": [{"name": "tmp", "emptyDir": {}}]},
        "status": {
            "startTime": "2026-11-15T09:59:00Z",
            "containerStatuses": [{"name": "main", "state": running}],
        },
    }


def test_the_summary_has_everything_of_upstreams():
    volume = VolumeUsage(TreeUsage(50, 5), DISK, ephemeral=True)
    memory = VolumeUsage(TreeUsage(70, 7), DISK, ephemeral=False)
    disk = PodDisk(time=NOW, node=DISK, logs={"main": TreeUsage(10, 1)}, volumes={"tmp": volume, "shm": memory})
    facts = {"u1": facts_of(pod_object(), {"main": 1000}, disk)}
    reading = NodeReading(usage=node(), disk=DISK, image_disk=DISK, images=TreeUsage(99, 9))
    result = Summary("n1", Rates()).of_pods(reading, [stats()], facts)
    of_node, [pod] = result["node"], result["pods"]
    assert of_node["memory"]["availableBytes"] == 5000
    assert of_node["network"]["name"] == "eth0"
    assert [link["name"] for link in of_node["network"]["interfaces"]] == ["eth1", "eth0"]
    assert of_node["fs"]["inodesUsed"] == 30
    assert of_node["runtime"]["imageFs"]["usedBytes"] == 99
    assert of_node["swap"] == {"time": of_node["cpu"]["time"], "swapAvailableBytes": 70, "swapUsageBytes": 30}
    assert (of_node["rlimit"]["maxpid"], of_node["rlimit"]["curproc"]) == (4000, 12)
    assert pod["podRef"] == {"name": "web", "namespace": "shop", "uid": "u1"}
    assert pod["startTime"] == "2026-11-15T09:59:00Z"
    [container] = pod["containers"]
    assert container["startTime"] == "2026-11-15T10:00:00Z"
    assert container["memory"]["availableBytes"] == 700
    assert container["logs"]["usedBytes"] == 10
    assert [(row["name"], row["usedBytes"]) for row in pod["volume"]] == [("shm", 70), ("tmp", 50)]
    assert pod["ephemeral-storage"]["usedBytes"] == 20 + 10 + 50  # the layer, the log and the emptyDir
    assert pod["process_stats"] == {"process_count": 4}


def test_a_pod_in_the_network_of_the_host_has_no_network_of_its_own():
    object_ = pod_object()
    object_["spec"]["hostNetwork"] = True
    [pod] = Summary("n1", Rates()).of_pods(None, [stats()], {"u1": facts_of(object_, {}, None)})["pods"]
    assert "network" not in pod


def test_rates_are_the_increase_since_somebody_asked():
    summary = Summary("n1", Rates())
    first = summary.of_pods(NodeReading(usage=node(cpu=10 * SECOND)), [stats(cpu=SECOND)], {})
    assert "usageNanoCores" not in first["node"]["cpu"]
    later = NOW + 10 * SECOND
    second = summary.of_pods(NodeReading(usage=node(later, 25 * SECOND)), [stats(later, 3 * SECOND)], {})
    assert second["node"]["cpu"]["usageNanoCores"] == 1_500_000_000
    assert second["pods"][0]["cpu"]["usageNanoCores"] == 200_000_000
    assert second["pods"][0]["containers"][0]["cpu"]["usageNanoCores"] == 200_000_000


@pytest.mark.parametrize(
    ("readings", "rate"),
    [
        pytest.param([(0, 0), (1, 5)], 5, id="a second later"),
        pytest.param([(0, 0), (1, 5), (1.1, 100)], 5, id="at once again: the last rate"),
        pytest.param([(0, 9), (1, 5)], None, id="a counter that was reset"),
        pytest.param([(0, 0), (200, 5)], None, id="too long ago"),
        pytest.param([(0, 0)], None, id="the first"),
    ],
)
def test_a_rate_needs_two_readings_that_belong_together(readings, rate):
    rates = Rates()
    result = [rates.rate("k", int(at * SECOND), value) for at, value in readings]
    assert result[-1] == rate
    rates.keep(set())
    assert not rates.knows("k", SECOND)


def test_resource_metrics_have_upstreams_names_and_timestamps():
    facts = {"u1": facts_of(pod_object(), {}, None)}
    lines = resource_metrics.text(node(cpu=5 * SECOND), [stats(cpu=SECOND // 2)], facts).splitlines()
    at = NOW // 1_000_000
    labels = 'container="main",namespace="shop",pod="web"'
    assert f"container_cpu_usage_seconds_total{{{labels}}} 0.5 {at}" in lines
    assert f"container_memory_working_set_bytes{{{labels}}} 300 {at}" in lines
    assert f"container_start_time_seconds{{{labels}}} 1794736800 1794736800000" in lines
    assert f"node_cpu_usage_seconds_total 5 {at}" in lines
    assert f'pod_memory_working_set_bytes{{namespace="shop",pod="web"}} 300 {at}' in lines
    assert "resource_scrape_error 0" in lines
    assert "resource_scrape_error 1" in resource_metrics.text(None, [], {}).splitlines()


def test_probes_of_pods_that_are_gone_are_forgotten():
    meter = KubeletMetrics()
    web, old = (
        pods.read({**pod_object(), "metadata": {"name": name, "namespace": "shop", "uid": name}}) for name in "ab"
    )
    for pod in (web, old):
        meter.probed(ProbedContainer(pod, "main", "Liveness"), "successful", 0.01)
    text = meter.probes_text([web])
    labels = 'probe_type="Liveness",container="main",pod="a",namespace="shop"'
    assert f'prober_probe_total{{{labels},pod_uid="a",result="successful"}} 1' in text
    assert f"prober_probe_duration_seconds_count{{{labels}}} 1" in text
    assert 'pod="b"' not in text


def test_the_kernel_says_what_the_node_uses():
    used = read_node_usage()
    assert 0 < used.working_set <= used.memory <= used.memory_total
    assert used.cpu_nanoseconds > 0
    assert used.threads > 0
    assert busy_ticks("cpu  1 2 4 1000 2000 8 16 32 64 128\ncpu0 9 9\n") == 63
    assert busy_ticks("cpu  1 2 4 1000\n") == 7  # a very old kernel


def test_directories_of_a_pod_are_measured_and_kept_for_a_while(tmp_path):
    paths = KubeletPaths(root=tmp_path / "kubelet", logs=tmp_path / "logs")
    pod = pods.read(pod_object())
    volume = paths.pod("u1") / "volumes/kubernetes.io~empty-dir/tmp"
    log = paths.pod_logs("shop", "web", "u1") / "main/0.log"
    for file in (volume / "data", log):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * 10_000)
    meter = DiskMeter(paths)
    measured = meter.pods([pod])["u1"]
    assert measured.logs["main"].used_bytes >= 10_000
    assert measured.volumes["tmp"].used.used_bytes >= 10_000
    assert measured.volumes["tmp"].ephemeral
    assert meter.pods([pod])["u1"] is measured
    assert meter.pods([]) == {}
