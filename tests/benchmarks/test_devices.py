"""The lines about devices: a short run with a plugin in a process of its own."""

from benchmarks import devices


def test_devices_come_to_a_node_and_to_pods_and_their_times_are_taken():
    figures = list(devices.measure(0.1))
    assert [figure.group for figure in figures] == [devices.SEEN] * 2 + [devices.GIVEN] * 3
    assert all(figure.value > 0 for figure in figures)
