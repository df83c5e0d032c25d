"""Metrics as Prometheus reads them."""

from podwire.nriplugins.network.metrics import Meter


def test_times_are_in_buckets_and_labels_are_escaped():
    meter = Meter()
    for item in (0.0004, 0.0015, 3.0):
        meter.hook("RunPodSandbox", item)
    meter.failed("PodRoute", 'say "no"\n')
    text = meter.text({"pods": ("Pods", [((), 2.0)])})
    lines = text.splitlines()
    name = "podwire_nri_network_hook_duration_seconds"
    assert f'{name}_bucket{{hook="RunPodSandbox",le="0.0005"}} 1' in lines
    assert f'{name}_bucket{{hook="RunPodSandbox",le="0.002"}} 2' in lines
    assert f'{name}_bucket{{hook="RunPodSandbox",le="+Inf"}} 3' in lines
    assert f'{name}_count{{hook="RunPodSandbox"}} 3' in lines
    assert 'podwire_nri_network_failures_total{part="PodRoute",reason="say \\"no\\"\\n"} 1' in lines
    assert "podwire_nri_network_pods 2" in lines
    assert text.endswith("\n")
