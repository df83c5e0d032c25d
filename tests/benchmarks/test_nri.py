"""The lines about NRI: a short run with one plugin in a process of its own, and how ten are held against one."""

from benchmarks import nri


def test_a_plugin_comes_to_a_large_node_and_its_time_is_taken(tmp_path):
    times, size = nri._driven(nri._synchronized(tmp_path / "nri.sock", 0.1))
    assert times
    assert all(each > 0 for each in times)
    assert size > 4 << 20, "one message would hold it, so that batches are not measured"


def test_ten_plugins_are_held_against_ten_hooks_of_one_in_a_row():
    assert nri._in_a_row([1.0] * 9 + [11.0] + [1.0] * 10 + [5.0]) == 15.0
