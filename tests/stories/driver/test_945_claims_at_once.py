"""Many pods with claims for cards start and end at once: each gets a card, and no slice ever names one that is not."""

import contextlib
import subprocess
import threading

import pytest

AT_ONCE, WAVES = 7, 15
CARDS = {"pci-0000-3b-00-0", "pci-0000-3b-00-1"} | {f"pci-0000-3b-02-{number}" for number in range(8)}
DEVICES = '{range .spec.devices[*]}{.name}{" "}{end}{"\\n"}'


@pytest.fixture(scope="module")
def running_stage(empty_stage):
    made = empty_stage
    made.up("--hardware", "sriov")
    made.driver.start()
    return made


@contextlib.contextmanager
def published(stage):
    """Collects the names of all devices that a slice ever had meanwhile."""
    seen = set()
    words = ["kubectl", "--kubeconfig", stage.cluster.layout.kubeconfig, "get", "resourceslices", "--watch"]
    words += ["--field-selector", "spec.driver=net.podwire.dev", "-o", f"jsonpath={DEVICES}"]
    with subprocess.Popen(stage.cluster.space.command(*words), stdout=subprocess.PIPE, text=True) as watch:
        reader = threading.Thread(target=lambda: seen.update(name for line in watch.stdout for name in line.split()))
        reader.start()
        try:
            yield seen
        finally:
            watch.kill()
            reader.join()


def test_pods_with_claims_that_come_and_go_at_once_all_get_a_card(stage, claim):
    stage.cluster.eventually(lambda: set(stage.devices()) == CARDS, "all cards are offered", stage.logs)
    before = stage.dump("ens")
    stage.cluster.apply(claim("card", kind="ResourceClaimTemplate"))
    pods = []
    with published(stage) as seen:
        for wave in range(WAVES):
            names = [f"pod-{wave}-{number}" for number in range(AT_ONCE)]
            stage.run(*(stage.pod(name, "nic=card") for name in names))
            stage.cluster.delete(*names)  # the next pods start while these end
            pods += names
        stage.cluster.eventually(lambda: not stage.cluster.pods(), "all pods are gone", stage.logs)
        stage.as_before(before, "ens")
    assert seen == CARDS
    stage.never_bare(*pods)
