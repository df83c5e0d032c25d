"""kill -9 at every failpoint of every plugin: what is left of a pod is given back by DEL, and by GC.

The tests are made from the list of failpoints. `make soak` recovers in every way, `make test` in one by the seed.
"""

RECOVERIES = ("DEL", "DEL without the namespace", "GC")


def test_every_failpoint_is_a_step_of_a_chain(declared, steps):
    assert {step.point for step in steps} == declared


def die(network, step):
    """At the step, which is one of ADD or of DEL."""
    network.begin("a")
    network.add("a", step.at)
    if network.dies("ADD", "a", network.config("a", step.at), step.point):
        return
    for at in range(step.at + 1, len(network.configs("a"))):
        network.results["a"].append(network.host.add("a", network.config("a", at)))
    network.delete("a", down_to=step.at)
    config = network.configs("a")[step.at] | {"prevResult": network.results["a"][-1]}
    assert network.dies("DEL", "a", config, step.point), f"{step} was not passed"


def test_plugin_killed_at_a_failpoint_leaves_nothing_after_del_or_gc(hosts, network, step, chance, soak):
    for how in RECOVERIES if soak else [chance.choice(RECOVERIES)]:
        beside = chance.random() < 0.5

        def tried(host, how=how, beside=beside):
            there = network(host, step.kind)
            if beside:
                there.begin("b")
                there.add("b")
            die(there, step)
            there.recover(how)
            there.settled(f"killed at {step}, then {how}; beside another: {beside}")

        hosts(tried)


def test_add_succeeds_after_an_add_was_killed(hosts, network, some_step):
    """As runtimes try again that forgot to ask for DEL."""

    def tried(host):
        there = network(host, some_step.kind)
        die(there, some_step)
        del there.results["a"][some_step.at :]
        for at in range(some_step.at, len(there.configs("a"))):
            there.results["a"].append(host.add("a", there.config("a", at)))
        there.check("a")
        there.delete("a")
        there.settled(f"killed at {some_step}, then ADD")

    hosts(tried)


def test_killed_gc_is_completed_by_the_next(hosts, network, some_step):
    def tried(host):
        there = network(host, some_step.kind)
        for letter in "ab":
            there.begin(letter)
            there.add(letter)
        stay = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth0"}]}
        died = there.dies("GC", "a", there.configs("a")[some_step.at] | stay, some_step.point)
        there.collect("b")
        there.settled(f"GC {'killed' if died else 'not killed'} at {some_step}, then GC")

    hosts(tried)
