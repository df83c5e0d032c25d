"""Fixtures of these stories; support.py has the classes."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.stories.containerd.support import (
    KUBECONFIG,
    PODWIRE,
    SOCKET,
    Cluster,
    Program,
    config_of_the_guide,
    groups,
    has_accounts,
    logs_of,
    machine_with_containerd,
    reference_plugins,
    watched,
    watched_clusters,
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for cluster in watched_clusters:
            report.sections += [(name, text[-5000:]) for name, text in logs_of(cluster).items()]
    return report


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`podwire up` on a containerd as the guide configures it, with our CNI plugins."""
    folder = tmp_path_factory.mktemp("containerd")
    with machine_with_containerd(config_of_the_guide(), folder) as made, watched(made):
        made.machine.output(PODWIRE, "up", "--detach", "--store", "memory://", "--runtime", f"unix://{SOCKET}")
        eventually(lambda: has_accounts(made))
        yield made


@pytest.fixture
def groups_of() -> Callable[[Sequence[str]], list[Path]]:
    return groups


@pytest.fixture(scope="module")
def reference_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A containerd with the reference plugins, and no network yet."""
    config = config_of_the_guide().replace("/var/lib/podwire/cni/bin", str(reference_plugins()))
    with machine_with_containerd(config, tmp_path_factory.mktemp("reference")) as made, watched(made):
        yield made


@pytest.fixture(scope="session")
def programs_of() -> Callable[[Cluster], list[Program]]:
    """API server, scheduler and kubelet, as a person starts them by hand."""

    def made(cluster: Cluster) -> list[Program]:
        (cluster.machine.root / "var/log/podwire").mkdir()
        commands = {
            "apiserver": ("--data-dir", "/var/lib/podwire", "--listen", "127.0.0.1:6443", "--store", "memory://"),
            "scheduler": ("--kubeconfig", KUBECONFIG),
            "kubelet": ("--kubeconfig", KUBECONFIG, "--runtime", f"unix://{SOCKET}"),
        }
        return [
            Program(cluster.machine, PODWIRE, name, *flags, log=f"var/log/podwire/{name}.log")
            for name, flags in commands.items()
        ]

    return made
