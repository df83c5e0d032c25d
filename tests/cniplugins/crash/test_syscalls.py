"""kill -9 at every system call that changes something: what is left of a pod is given back by DEL, and by GC.

`make test` tries a few points of a few plugins, which ones follows from the seed; `make soak` tries all of all.
"""

import pytest

RECOVERIES = ("DEL", "DEL without the namespace", "GC")

pytestmark = pytest.mark.timeout(1800)  # in soak


def try_points(hosts, network, attack, called, chance, recoveries=RECOVERIES):
    """Each on a host of its own; half of them with another pod there, which must not notice."""
    points = []
    hosts(lambda host: points.extend(attack.recorded(network(host, attack.kind), called)))
    dead = []
    for point in attack.chosen(points):
        beside, how = chance.random() < 0.5, chance.choice(recoveries)
        told = f"{attack} killed at {point}, then {how}; beside another: {beside}"

        def tried(host, point=point, beside=beside, how=how, told=told):
            there = network(host, attack.kind)
            attack.arrange(there, beside=beside)
            dead.append(attack.struck(there, point, called))
            there.recover(how)
            there.settled(told)

        hosts(tried)
    assert any(dead), f"nobody died of {points}"


def test_a_plugin_that_is_killed_at_a_system_call_leaves_nothing(hosts, network, attack, by_program, chance):
    try_points(hosts, network, attack, by_program, chance)


def test_a_program_whose_daemon_goes_on_without_it_leaves_nothing(
    hosts, network, attack_on_forwarder, by_forwarder, chance
):
    """DEL waits for what the daemon is at; GC would spare it."""
    try_points(hosts, network, attack_on_forwarder, by_forwarder, chance, RECOVERIES[:2])


def test_a_daemon_that_is_killed_at_a_system_call_leaves_nothing(hosts, network, attack_on_daemon, by_daemon, chance):
    try_points(hosts, network, attack_on_daemon, by_daemon, chance)
