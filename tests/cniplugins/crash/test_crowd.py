"""Sixty-four at once that ADD and DEL, by programs and by a daemon that is killed meanwhile, all in one place."""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from podwire.ipam import ranges
from podwire.ipam.entries import Owner
from podwire.ipam.leases import Leases

WORKERS = 64
SUBNETS = ("10.88.0.0/26", "fd88::/120")
"""Of the first there are fewer addresses than workers: the pool is full now and then."""
TRY_AGAIN_LATER = 11


class Crowd:
    """Owners of addresses at this moment, as their callers know them."""

    def __init__(self, host) -> None:
        self.host, self.config = host, host.bridge(*SUBNETS, ipMasq=True)
        self.ways = [host.programs, host.root / "forwarding"]
        self.living: dict[str, str] = {}
        self.doubles: list[str] = []
        self.refused: list[str] = []
        self.done = 0
        self._lock = threading.Lock()

    def was_given(self, id_: str, addresses: list[str]) -> None:
        with self._lock:
            self.doubles += [
                f"{address}: {self.living[address]} and {id_}" for address in addresses if address in self.living
            ]
            self.living |= dict.fromkeys(addresses, id_)
            self.done += bool(addresses)

    def gives_back(self, addresses: list[str]) -> None:
        with self._lock:
            for address in addresses:
                del self.living[address]

    def call(self, chance, verb: str, id_: str, netns: str, *, may_die: bool) -> dict | None:
        """The output; None when the call was not made, or its outcome is unknown."""
        process = subprocess.Popen(
            [chance.choice(self.ways) / "bridge"],
            env=self.host.environment(verb, id_, netns),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            if may_die and chance.random() < 0.1:
                threading.Timer(chance.random() * 0.1, process.kill).start()
            stdout, _ = process.communicate(json.dumps(self.config).encode(), timeout=100)
        finally:
            process.kill()
        answer = json.loads(stdout) if stdout else {}
        if process.returncode > 0 and answer.get("code") != TRY_AGAIN_LATER:
            self.refused.append(f"{verb} of {id_}: {answer}")
        return answer if process.returncode == 0 else None

    def work(self, number: int, chance, until: float) -> None:
        """Pods come and go in one namespace, until it is late."""
        netns, round_ = self.host.namespaces.path(f"w{number}"), 0
        while time.monotonic() < until:
            id_, round_ = f"w{number}-{round_}", round_ + 1
            result = self.call(chance, "ADD", id_, netns, may_die=True)
            addresses = [address["address"] for address in result["ips"]] if result else []
            self.was_given(id_, addresses)
            time.sleep(chance.random() * 0.1)
            self.gives_back(addresses)
            while self.call(chance, "DEL", id_, netns, may_die=time.monotonic() < until) is None:
                if self.refused:
                    return


def whole(host) -> int:
    """How many addresses can be given of those that there are too few of."""
    sets = ranges.parse_sets(host.bridge(*SUBNETS)["ipam"])
    leases, size = Leases(str(host.leases)), ranges.size(sets[0])
    for number in range(size):
        leases.take(Owner(f"probe{number}", "eth0"), sets)
    leases.release_others(frozenset())
    return size


@pytest.mark.timeout(300)
def test_no_address_has_two_owners_and_none_is_lost(host, chance, soak, leakcheck):
    seconds = 60.0 if soak else 5.0
    crowd = Crowd(host)
    for number in range(WORKERS):
        host.pod(f"w{number}")
    with host.daemon_process() as daemon, ThreadPoolExecutor(WORKERS) as pool:
        until = time.monotonic() + seconds
        seeds = [type(chance)(chance.random()) for _ in range(WORKERS)]
        working = [pool.submit(crowd.work, number, seeds[number], until) for number in range(WORKERS)]
        time.sleep(seconds / 2)
        daemon.kill()
        daemon.wait(60)
        with host.daemon_process():
            for item in working:
                item.result(200)
    assert (crowd.doubles, crowd.refused, crowd.living) == ([], [], {})
    print(crowd.done, "times an address was given")  # noqa: T201 - how much was tried
    assert crowd.done > WORKERS / 4
    assert host.left() == {}
    assert leakcheck(host) == []
    assert whole(host) == 61
    assert host.left() == {}
