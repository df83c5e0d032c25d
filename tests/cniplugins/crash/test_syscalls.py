"""kill -9 at every system call that changes something: what is left of a pod is given back by DEL, and by GC.

`make test` tries a few points of a few plugins, which ones follows from the seed; `make soak` tries all of all.
"""

import pytest

RECOVERIES = ("DEL", "DEL without the namespace", "GC")

pytestmark = pytest.mark.timeout(1800)  # in soak


def try_points(hosts, network, attack, called, chance, recoveries=RECOVERIES):
    """Each on a host of its own; half of them with another pod there, which must not notice.

    Plugins wait for the kernel by asking again, so a point that is among the last may not be reached: then nobody dies.
    """
    points = []
    hosts(lambda host: points.extend(attack.recorded(network(host, attack.kind), called)))
    for point in attack.chosen(points):
        beside, how = chance.random() < 0.5, chance.choice(recoveries)
        reported = f"{attack} killed at {point}, then {how}; beside another: {beside}"

        def tried(host, point=point, beside=beside, how=how, reported=reported):
            there = network(host, attack.kind)
            attack.arrange(there, beside=beside)
            attack.struck(there, point, called)
            there.recover(how)
            there.settled(reported)

        hosts(tried)


@pytest.mark.parametrize("caller", ["by_program", "by_daemon"])
def test_process_is_killed_at_the_chosen_system_call(hosts, network, first_attack, first_point, caller, request):
    def tried(host):
        there = network(host, first_attack.kind)
        first_attack.arrange(there, beside=False)
        assert first_attack.struck(there, first_point, request.getfixturevalue(caller))
        assert list(host.records.glob("*/net@*")) == [], "before its record had its name"
        there.recover("DEL")
        there.settled("")

    hosts(tried)


def test_plugin_killed_at_a_system_call_leaves_nothing(hosts, network, attack, by_program, chance):
    try_points(hosts, network, attack, by_program, chance)


def test_killed_forwarder_leaves_nothing(hosts, network, attack_on_forwarder, by_forwarder, chance):
    """DEL waits for what the daemon is at; GC would spare it."""
    try_points(hosts, network, attack_on_forwarder, by_forwarder, chance, RECOVERIES[:2])


def test_daemon_killed_at_a_system_call_leaves_nothing(hosts, network, attack_on_daemon, by_daemon, chance):
    try_points(hosts, network, attack_on_daemon, by_daemon, chance)
