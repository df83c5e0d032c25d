"""Certificates of a machine that joined are renewed while it runs."""

import json
from collections.abc import Iterator

import pytest

from tests.eventually import eventually
from tests.stories.join_support import PODWIRE, FirstMachine, Machine, Switch

LIFETIME = "20s"


@pytest.fixture
def machines(own_machine: None) -> Iterator[tuple[FirstMachine, Machine]]:
    switch, first, second = Switch(), FirstMachine("first"), Machine("second")
    switch.connect(first, "192.168.7.1")
    switch.connect(second, "192.168.7.2")
    first.up("--advertise-address", "192.168.7.1", "--certificate-lifetime", LIFETIME)
    yield first, second
    second.run(PODWIRE, "leave", "--force")
    first.run(PODWIRE, "down", "--prefix", first.prefix)
    for machine in (second, first, switch):
        machine.close()


@pytest.mark.soak
def test_a_node_lives_longer_than_its_certificates(machines):
    first, second = machines
    invitation = first.token()
    words = [invitation["server"], "--token", invitation["token"], "--ca-cert-hash", invitation["hash"]]
    second.output(PODWIRE, "join", "--detach", *words)

    def renewals() -> dict[str, int]:
        lines = [
            line for line in second.output("cat", "/var/log/podwire/machine.log").splitlines() if "renewed" in line
        ]
        users = [next(word for word in line.split() if word.startswith("user=")) + line[-12:] for line in lines]
        return {user: users.count(user) for user in users}

    # Twice for each of the five: by then the first ones have expired.
    eventually(lambda: len(renewals()) == 5 and min(renewals().values()) >= 2, within=180)
    assert max(renewals().values()) < 30
    ready = {row["type"]: row["status"] for row in first.node("second")["status"]["conditions"]}["Ready"]
    assert ready == "True"
    there = first.start("there", "second")
    here = first.start("here", "node-1")
    assert first.page("here", there) == "there"
    eventually(lambda: here in first.kubectl("logs", "there"))
    requests = json.loads(first.kubectl("get", "csr", "-o", "json"))["items"]
    assert all((row.get("status") or {}).get("certificate") for row in requests)
