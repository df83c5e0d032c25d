"""The lines about NRI: a short run with one plugin in a process of its own."""

from benchmarks import nri


def test_a_plugin_comes_to_a_large_node_and_its_time_is_taken(tmp_path):
    times, size = nri._driven(nri._synchronized(tmp_path / "nri.sock", 0.1))
    assert times
    assert all(time > 0 for time in times)
    assert size > 4 << 20, "one message would hold it, so that batches are not measured"
