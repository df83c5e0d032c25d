"""Devices of every kind, claims as a scheduler leaves them, and the tables of what can be said and what cannot."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from podwire.dradriver.claims.allocations import Device
from podwire.dradriver.parameters.effective import effective
from podwire.dradriver.parameters.schema import API_VERSION, KIND
from podwire.dradriver.parameters.settings import Settings
from podwire.linux.net.sysfs import Hardware
from podwire.objects import claims
from podwire.objects.claims import ResourceClaim

HERE = Path(__file__).parent
DRIVER, CLASS = "net.podwire.dev", "net.example"
HEAD = {"apiVersion": API_VERSION, "kind": KIND}

ETH1 = Device(
    name="eth1",
    link="eth1",
    ifindex=3,
    kind="",
    mac="02:00:00:00:00:09",
    mtu=1500,
    shared=False,
    hardware=Hardware(),
)
UPLINK = replace(ETH1, name="uplink", link="eth2", shared=True)
DEVICES = {
    "whole": ETH1,
    "eth0": replace(ETH1, name="eth0", link="eth0"),
    "vf": replace(ETH1, parent_mtu=1500),
    "rdma": replace(ETH1, rdma="mlx5_0"),
    "ipoib": replace(ETH1, name="ib0", link="ib0", kind="ipoib"),
    "ib-only": replace(ETH1, name="mlx5-1", link="", rdma="mlx5_1"),
    "shared": UPLINK,
    "shared-ipoib": replace(UPLINK, name="ib0", link="ib0", kind="ipoib"),
    "bridge": replace(UPLINK, name="br0", link="br0", kind="bridge"),
}


def table(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = yaml.safe_load((HERE / name).read_text(encoding="utf-8"))
    return cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`refused_case` and `accepted_case` are each row of the tables."""
    for fixture, name in (("refused_case", "cases.yaml"), ("accepted_case", "accepted.yaml")):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, [pytest.param(item, id=item["id"]) for item in table(name)])


def parameters(says: dict[str, Any]) -> dict[str, Any]:
    return {**HEAD, **says}


def config(
    says: dict[str, Any], source: str = "FromClaim", requests: tuple[str, ...] = (), driver: str = DRIVER
) -> Any:
    entry = {"requests": list(requests), "opaque": {"driver": driver, "parameters": parameters(says)}}
    return {"source": source, **entry}


def allocated(configs: list[Any], request: str = "nic", **result: Any) -> ResourceClaim:
    """A claim as it is once a scheduler has allocated it."""
    base, _, alternative = request.partition("/")
    way = {"deviceClassName": CLASS}
    asked = {"firstAvailable": [{"name": alternative, **way}]} if alternative else {"exactly": way}
    written = [
        {k: v for k, v in config.items() if k != "source"} for config in configs if config["source"] == "FromClaim"
    ]
    chosen = {"request": request, "driver": DRIVER, "pool": "node-1", "device": "eth1", **result}
    return claims.read(
        {
            "metadata": {"name": "c", "namespace": "default", "uid": "u-1"},
            "spec": {"devices": {"requests": [{"name": base, **asked}], "config": written}},
            "status": {"allocation": {"devices": {"results": [chosen], "config": configs}}},
        }
    )


def decided(configs: list[Any], device: Device = ETH1, request: str = "nic", **result: Any) -> Settings:
    claim = allocated(configs, request, **result)
    return effective(claim, claim.allocated[0], device)


def of_case(case: dict[str, Any]) -> list[Any]:
    found = [config(case["class"], "FromClass")] if "class" in case else []
    return [*found, *([config(case["says"])] if "says" in case else [])]


@pytest.fixture
def said() -> Any:
    """Makes configs: `said({...})` of the claim, `said({...}, "FromClass")` of the class."""
    return config


@pytest.fixture
def decide() -> Any:
    return decided


@pytest.fixture
def decide_case() -> Any:
    return lambda case: decided(of_case(case), DEVICES[case.get("device", "whole")])


@pytest.fixture
def cases() -> dict[str, list[dict[str, Any]]]:
    return {name: table(name) for name in ("cases.yaml", "accepted.yaml")}


@pytest.fixture
def devices() -> dict[str, Device]:
    return DEVICES
