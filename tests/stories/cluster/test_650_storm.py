"""One component after the other is killed while pods come and go: in the end all is as if nothing had been."""

import os
import random
import sys
import threading
import time

import pytest

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run, another one every hour; set it to repeat a run."""

COMPONENTS = ("trace", "apiserver", "cni", "runtime", "scheduler", "dns", "kubelet")
SECONDS = 30.0 if SOAK else 4.0
ROUNDS = 6 if SOAK else 1
PODS = 12 if SOAK else 6

pytestmark = pytest.mark.timeout(600)


class Storm(threading.Thread):
    """Kills somebody every now and then; who is dead already is spared."""

    def __init__(self, cluster, chance):
        super().__init__()
        self.cluster, self.chance = cluster, chance
        self.over = threading.Event()
        self.kills = dict.fromkeys(COMPONENTS, 0)

    def run(self):
        while not self.over.wait(self.chance.uniform(0.1, 1.5)):
            component = self.chance.choice(COMPONENTS)
            if pid := self.cluster.components()[component]["pid"]:
                self.kills[component] += 1
                self.cluster.kill(pid)

    def stop(self):
        self.over.set()
        self.join()


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_pods_come_and_go_in_a_storm_of_kills(cluster, a_pod, round_):
    seed = SEED + round_
    chance = random.Random(seed)
    sys.stdout.write(f"PODWIRE_CRASH_SEED={seed}\n")
    cluster.up()
    cluster.apply(a_pod("kept"))
    kept = cluster.once(cluster.running(1))
    storm = Storm(cluster, random.Random(f"{seed} storm"))
    storm.start()
    try:
        here, count, until = set(), 0, time.monotonic() + SECONDS
        while time.monotonic() < until:
            new = {f"pod-{count + number}" for number in range(chance.randint(1, 4))} if len(here) < PODS else set()
            count += len(new)
            gone = set(chance.sample(sorted(here), chance.randint(0, min(3, len(here)))))
            if new:
                cluster.apply(*(a_pod(item) for item in sorted(new)))
            if gone:
                cluster.delete(*sorted(gone))
            here = here - gone | new
    finally:
        storm.stop()
    sys.stdout.write(f"{count} pods, {storm.kills}\n")
    cluster.eventually(cluster.is_up, "all components are there again")
    pods = cluster.running(1 + len(here))
    assert pods.keys() == {"kept", *here}
    assert kept.items() <= cluster.once(pods).items(), "a container that ran lost its process"
    cluster.delete_all()
    cluster.empty()
    cluster.down()
