"""Drivers and kubelets come and go in any order; what drivers offer stays as long as they may come back."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from podwire.kubelet.claims import ClaimSettings, manager
from podwire.kubelet.plugin_manager import PluginLimits
from podwire.kubelet.pods.status_manager import PODS
from podwire.protocols.cri import cri_pb2
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

DRIVER, GONE = "nic.example.org", "gone.example.org"
SLICES = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceSlice")
CLAIMS = BUILTIN.of_kind("resource.k8s.io/v1", "ResourceClaim")
QUICK = ClaimSettings(slices=0.5, slices_retry=0.1, reconcile=0.5)


def reported(driver):
    return asyncio.to_thread(driver.reported.get, timeout=30)


async def restart(world, settings=None):
    await world.stop()
    world.start(settings)


async def offer(world, driver=DRIVER, name="nics"):
    await world.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {
                "driver": driver,
                "nodeName": "n",
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "eth2"}],
            },
        }
    )


async def withdrawn(world, name="nics"):
    async with asyncio.timeout(30):
        while name in await offered(world):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)


async def offered(world):
    return [item["metadata"]["name"] for item in (await world.api.list(SLICES)).items]


async def test_a_driver_registers_again_with_a_kubelet_that_starts_again(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await restart(world)
    assert await reported(driver) == (True, "")
    await claims.make()
    await claims.pod()
    await world.running()


async def test_a_driver_that_starts_again_is_asked_again(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await asyncio.to_thread(driver.leave)
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.running()


@pytest.mark.parametrize("moment", ["before_info", "before_notify"])
async def test_a_driver_that_fails_as_it_registers_is_asked_again(world, dra_driver, claims, moment):
    await world.stop()
    world.plugin_limits = PluginLimits(backoff=(0.05, 1.0))
    world.start()
    driver, failures = dra_driver(), [1, 2]

    def fails():
        if failures:
            raise ValueError(failures.pop())

    setattr(driver, moment, fails)
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.running()


async def test_an_incompatible_driver_is_rejected_with_the_reason(world, dra_driver):
    driver = dra_driver()
    driver.versions = ["v9.DRAPlugin"]
    await asyncio.to_thread(lambda: driver.serve().register())
    taken, why = await reported(driver)
    assert not taken
    assert why == (
        f"invalid supported gRPC versions of DRA driver plugin {DRIVER} at endpoint {driver.socket}: v9.DRAPlugin; "
        "expected at least one of v1.DRAPlugin, v1beta1.DRAPlugin"
    )


async def test_a_driver_cannot_take_over_the_socket_of_another(world, dra_driver):
    await asyncio.to_thread(dra_driver().start)
    thief = dra_driver(instance="-2")
    thief.endpoint = str(dra_driver().socket)
    await asyncio.to_thread(thief.register)
    assert await reported(thief) == (
        False,
        f"endpoint {thief.endpoint} already registered for DRA driver plugin {DRIVER}",
    )


async def test_a_driver_may_listen_after_it_has_registered(world, dra_driver, claims):
    driver = dra_driver()
    await asyncio.to_thread(driver.register)
    assert await reported(driver) == (True, "")
    await claims.make()
    await claims.pod()
    assert f"DRA driver {DRIVER}: NodePrepareResources: " in await world.event("FailedPrepareDynamicResources")
    await asyncio.to_thread(driver.serve)
    await world.running()


async def test_while_a_driver_is_replaced_the_newer_is_asked_and_the_older_when_that_is_away(world, dra_driver, claims):
    old, new = dra_driver(instance="-1"), dra_driver(instance="-2")
    await asyncio.to_thread(old.start)
    await asyncio.to_thread(new.start)
    for name in ("one", "two", "three"):
        await claims.make(name)
    await claims.pod("one", "one")
    await world.running("one")
    assert (old.prepared, new.prepared) == ([], ["one"])
    await asyncio.to_thread(new.silence)
    await claims.pod("two", "two")
    await world.running("two")
    assert (old.prepared, new.prepared) == (["two"], ["one"])
    await asyncio.to_thread(new.serve)
    await asyncio.to_thread(old.leave)
    await claims.pod("three", "three")
    await world.running("three")
    await world.delete("two")
    assert (old.prepared, new.prepared, new.unprepared) == (["two"], ["one", "three"], ["two"])


async def test_a_failed_preparation_is_retried_after_a_restart(world, dra_driver, claims):
    driver = dra_driver()
    good, broken = driver.prepare, [True]

    def prepare(claim):
        if broken:
            raise ValueError("not now")
        return good(claim)

    driver.prepare = prepare
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.event("FailedPrepareDynamicResources")
    await world.stop()
    broken.clear()
    world.start()
    await world.running()


async def test_a_failed_unpreparation_is_retried_after_a_restart(world, dra_driver, claims):
    driver, broken = dra_driver(), [True]

    def unprepare(_claim):
        if broken:
            raise ValueError("not now")

    driver.unprepare = unprepare
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.running()
    await world.api.delete(PODS, "p", "default")
    await world.event("FailedUnprepareDynamicResources")
    await world.stop()
    broken.clear()
    asked, gone = len(driver.unprepared), asyncio.create_task(world.gone())
    world.start()
    await gone
    assert len(driver.unprepared) > asked


async def test_a_running_pod_keeps_its_claims_through_a_restart_and_its_containers_start_again(
    world, dra_driver, claims
):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    before = [device.name for device in world.runtime.configs["c"].CDI_devices]
    await world.stop()
    await asyncio.to_thread(driver.leave)
    world.runtime.configs.clear()
    world.start()
    await eventually_async(lambda: world.kubelet.pod_workers.find("default", "p") is not None)
    world.runtime.ends("c", 1)
    await world.until(lambda each: each and each["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert [device.name for device in world.runtime.configs["c"].CDI_devices] == before
    assert driver.prepared == ["mine"]
    await asyncio.to_thread(driver.start)


@pytest.mark.parametrize("away", [False, True], ids=["its driver is there", "its driver comes later"])
async def test_a_record_that_was_lost_is_made_again_before_anything_is_started(world, dra_driver, claims, away):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    await world.stop()
    shutil.rmtree(world.root / "claims")
    world.runtime.configs.clear()
    if away:
        await asyncio.to_thread(driver.leave)
    world.start()
    if away:
        await world.event("FailedPrepareDynamicResources")
        world.runtime.ends("c", 1)
        await world.until(lambda each: each and "waiting" in each["status"]["containerStatuses"][0]["state"])
        assert world.runtime.configs == {}
        await asyncio.to_thread(driver.start)
    else:
        await eventually_async(lambda: driver.prepared == ["mine"] * 2)
        world.runtime.ends("c", 1)
    await world.until(lambda each: each and each["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert len(world.runtime.configs["c"].CDI_devices) == 1
    assert driver.prepared == ["mine"] * 2
    await world.delete()
    assert driver.unprepared == ["mine"]


@pytest.mark.parametrize(("rebooted", "asked"), [(True, 2), (False, 1)], ids=["after a boot", "without one"])
async def test_after_a_boot_a_new_sandbox_has_its_claims_prepared_again(
    world, dra_driver, claims, monkeypatch, rebooted, asked
):
    """It takes sandboxes, and what drivers keep below /run. What was prepared since is on the disk."""
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    await world.stop()
    ends_sandboxes(world)
    if rebooted:
        monkeypatch.setattr(manager, "boot_id", lambda: "another")
    world.start()
    await world.runtime.until_true(lambda: world.runtime.calls.count("StartContainer") == 2)
    assert driver.prepared == ["mine"] * asked
    await world.delete()
    assert driver.unprepared == ["mine"]


@pytest.mark.parametrize("rebooted", [True, False], ids=["after a boot", "without one"])
async def test_a_pod_keeps_its_claim_through_a_restart_while_another_waits_for_it(
    world, dra_driver, claims, monkeypatch, rebooted
):
    """The driver refuses every caller, once it has prepared the claim and there are two; who has it must not ask."""
    driver = await asyncio.to_thread(dra_driver().start)
    good, users, outlived = driver.prepare, ["one"], []

    def prepare(claim):
        if len(users) > 1 and not outlived:
            raise ValueError("one pod at a time")
        outlived.clear()
        return good(claim)

    driver.prepare = prepare
    await claims.make()
    one = await claims.pod("one")
    await world.running("one")
    users.append("two")
    two = await claims.pod("two", reserve=False)
    await claims.reserve("mine", one, two)
    await world.event("FailedPrepareDynamicResources")
    await world.stop()
    ends_sandboxes(world)
    if rebooted:
        outlived.append("mine")  # as it is on the driver's own record
        monkeypatch.setattr(manager, "boot_id", lambda: "another")
    world.start()
    await world.runtime.until_true(lambda: world.runtime.calls.count("StartContainer") == 2)
    await world.running("one")
    assert (await world.api.get(PODS, "two", "default"))["status"]["phase"] == "Pending"
    await claims.reserve("mine", two)
    users.remove("one")
    await world.delete("one")
    await world.running("two")
    await world.delete("two")
    assert driver.unprepared[-1:] == ["mine"]


def ends_sandboxes(world):
    for sandbox in tuple(world.runtime.sandboxes):
        world.runtime.stop_pod_sandbox(cri_pb2.StopPodSandboxRequest(pod_sandbox_id=sandbox))


async def test_claims_of_a_pod_deleted_while_no_kubelet_ran_are_unprepared(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    await world.stop()
    await world.api.delete(PODS, "p", "default", grace_seconds=0)
    world.start()
    await eventually_async(lambda: not list((world.root / "claims").iterdir()))
    assert driver.unprepared == ["mine"]
    assert world.runtime.sandboxes == {}


async def test_nothing_is_prepared_for_a_pod_that_went_while_no_kubelet_ran(world, dra_driver, claims):
    driver = dra_driver()
    await claims.make()
    await claims.pod()
    await world.event("FailedPrepareDynamicResources")
    await world.stop()
    await world.api.delete(PODS, "p", "default", grace_seconds=0)
    world.start()
    await asyncio.to_thread(driver.start)
    await claims.make("other")
    await claims.pod("q", "other")
    await world.running("q")
    assert driver.prepared == ["other"]


async def test_a_restart_keeps_slices_of_drivers_that_register_again(world, dra_driver):
    driver = await asyncio.to_thread(dra_driver().start)
    await offer(world)
    await offer(world, GONE, "others")
    await restart(world, ClaimSettings(slices=4.0))
    assert await reported(driver) == (True, "")
    await withdrawn(world, "others")
    assert await offered(world) == ["nics"]


@pytest.mark.parametrize("how", ["leave", "silence"])
async def test_slices_of_a_driver_that_stays_away_are_deleted(world, dra_driver, how):
    await restart(world, QUICK)
    driver = await asyncio.to_thread(dra_driver().start)
    await offer(world)
    await asyncio.to_thread(getattr(driver, how))
    await withdrawn(world)


async def test_slices_stay_while_their_driver_restarts(world, dra_driver):
    driver = await asyncio.to_thread(dra_driver().start)
    await offer(world)
    await asyncio.to_thread(driver.leave)
    offers = world.kubelet._claims._slices
    await eventually_async(lambda: offers.waiting == {DRIVER})
    await asyncio.to_thread(driver.start)
    await eventually_async(lambda: not offers.waiting)
    assert await offered(world) == ["nics"]


async def test_an_api_server_that_does_not_withdraw_is_asked_again(world, dra_driver, monkeypatch):
    await world.stop()
    delete, refusals = world.line.delete, [ApiError.from_status({"message": "not now"}, code=500)]

    async def refused(kind, name, namespace="", **more):
        if kind.kind == "ResourceSlice" and refusals:
            raise refusals.pop()
        return await delete(kind, name, namespace, **more)

    monkeypatch.setattr(world.line, "delete", refused)
    await offer(world)
    world.start(QUICK)
    await withdrawn(world)
    assert refusals == []


def health(pod):
    return [
        (item["resourceID"].partition("=")[0], item["health"], item.get("message"))
        for status in ((pod or {}).get("status") or {}).get("containerStatuses") or ()
        for resource in status.get("allocatedResourcesStatus") or ()
        for item in resource["resources"]
    ]


def is_(status, message=None):
    return lambda pod: health(pod) == [(f"{DRIVER}/nic", status, message)]


def connections(driver):
    """Connections that a driver has accepted: the kernel lists them under the path of its socket."""
    listed = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return [item for item in listed if item[-1] == str(driver.socket) and item[5] == "03"]


async def test_calls_and_how_devices_are_come_by_one_connection(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver(health="v1").start)
    await claims.make()
    await claims.pod()
    await world.running()
    await asyncio.to_thread(driver.tell, ("eth2", 1))
    await world.until(is_("Healthy"))
    assert len(connections(driver)) == 1


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_device_health_is_in_the_pod_status(world, dra_driver, claims, version):
    driver = dra_driver(health=version)
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.until(is_("Unknown"))
    await asyncio.to_thread(driver.tell, ("eth2", 1), ("eth3", 2))
    await world.until(is_("Healthy"))
    await asyncio.to_thread(driver.tell, ("eth2", 2, 30, "no carrier"))
    pod = await world.until(is_("Unhealthy", "no carrier"))
    assert pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["name"] == "claim:mine"
    await asyncio.to_thread(driver.silence)
    await world.until(is_("Unknown"))
    driver.news = []
    await asyncio.to_thread(driver.serve)
    await eventually_async(lambda: driver.streams)
    await asyncio.to_thread(driver.tell, ("eth2", 1))
    await world.until(is_("Healthy"))


async def test_a_stale_health_report_is_unknown(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver(health="v1").start)
    await claims.make()
    await claims.pod()
    await world.running()
    await asyncio.to_thread(driver.tell, ("eth2", 1, 1))
    await world.until(is_("Healthy"))
    began = time.monotonic()
    await world.until(is_("Unknown"))
    assert time.monotonic() - began < 25
    assert driver.streams, "it is still listened to"


async def test_a_driver_without_health_reports_is_asked_once(world, dra_driver, claims):
    await restart(world, ClaimSettings(health_pause=0.05))
    driver = dra_driver(health="")
    driver.versions.append("v1.DRAResourceHealth")
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.running()
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert f"health of {DRIVER}" not in names
    assert f"connection of {DRIVER}" in names


async def test_an_ended_pod_keeps_its_last_device_health(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver(health="v1").start)
    await claims.make()
    await claims.pod(restartPolicy="Never")
    await world.running()
    await asyncio.to_thread(driver.tell, ("eth2", 2, 30, "broken"))
    await world.until(is_("Unhealthy", "broken"))
    world.runtime.ends("c", 1)
    pod = await world.until(lambda each: each and each["status"]["phase"] == "Failed")
    assert is_("Unhealthy", "broken")(pod)


def tears(data):
    """The disk has the first half of it."""
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    "damaged", [lambda data: data + b" ", tears, lambda _: b""], ids=["a letter too many", "torn", "empty"]
)
async def test_a_damaged_record_of_a_deleted_pod_is_unprepared(world, dra_driver, claims, damaged):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.make("other", device="eth3")
    await claims.pod()
    await claims.pod("stays", "other")
    await world.running()
    await world.running("stays")
    (uid,) = {item["metadata"]["uid"] for item in (await world.api.list(CLAIMS)).items if name_of(item) == "mine"}
    await world.stop()
    record = world.root / "claims" / uid
    record.write_bytes(damaged(record.read_bytes()))
    await world.api.delete(PODS, "p", "default", grace_seconds=0)
    named = []
    driver.unprepare = lambda claim: named.append((claim.uid, claim.name))
    world.start(QUICK)
    await eventually_async(lambda: named)
    await eventually_async(lambda: not (world.root / "claims" / f"{uid}.damaged").exists())
    assert named == [(uid, "" if damaged(b"xx") == b"" else "mine")]
    assert sorted(driver.prepared) == ["mine", "other"], "who runs is left alone"


async def test_while_a_pod_waits_for_its_claims_no_damaged_record_is_given_up(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    await world.stop()
    (record,) = (world.root / "claims").iterdir()
    record.write_bytes(b"")
    world.start(QUICK)
    await eventually_async(lambda: driver.prepared == ["mine"] * 2)
    await eventually_async(lambda: [path.name for path in (world.root / "claims").iterdir()] == [record.name])
    assert driver.unprepared == []


async def test_the_damaged_record_of_a_claim_that_was_prepared_again_is_removed_at_once(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    await world.stop()
    (record,) = (world.root / "claims").iterdir()
    record.write_bytes(b"")
    world.start(ClaimSettings(registration=3600.0, reconcile=3600.0))
    await eventually_async(lambda: driver.prepared == ["mine"] * 2)
    await eventually_async(lambda: [path.name for path in (world.root / "claims").iterdir()] == [record.name])
    assert driver.unprepared == []


def name_of(object_):
    return object_["metadata"]["name"]
