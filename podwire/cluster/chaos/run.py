"""A run: rounds of pods and faults, each followed by a quiet time in which everything must come right again."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from podwire.cluster.chaos import manifests
from podwire.cluster.chaos.calls import LIMITS, Limits, Violation, until_answered
from podwire.cluster.chaos.faults import CannotRestart, Faults
from podwire.cluster.chaos.history import History
from podwire.cluster.chaos.manifests import (
    ACCOUNTS,
    CLAIMS,
    CLASSES,
    DRIVERS,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
)
from podwire.cluster.chaos.model import Model, addresses, allocated_devices, is_running
from podwire.cluster.chaos.plan import MOST_PODS, Fault, Step, planned
from podwire.cluster.chaos.service_model import GROUPS
from podwire.cluster.chaos.service_run import ServiceRun
from podwire.objects import nodes as node_objects
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.client_side.calls import Patience
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials, http_client


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seed: int
    duration: float
    faults: Collection[Fault]
    kubeconfig: Path
    leases: Callable[[], set[str]]
    """Returns the addresses that are leased on the nodes."""
    leftovers: Callable[[], list[str]]
    """Returns resources on the machine that no pod uses."""
    limits: Limits = LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    rounds: int
    pods: int
    faults: int


async def run(options: Options, faults: Faults, history: History) -> Result:
    """Runs until the time is over. Raises Violation."""
    access = credentials.load(options.kubeconfig)
    async with http_client.connect(access, user_agent="podwire-chaos") as http:
        patience = Patience(deadline=options.limits.request)
        try:
            return await Run(options, Client(http, patience=patience), faults, history).play()
        except BaseExceptionGroup as group:
            raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the first exception of nested groups; a violation before others, which follow from it."""
    violations, _ = group.split(Violation)
    first = (violations or group).exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


class Run:
    """One run in a namespace of its own."""

    def __init__(self, options: Options, client: Client, faults: Faults, history: History) -> None:
        self._options = options
        self._client = client
        self._faults = faults
        self._history = history
        self._limits = options.limits
        self._model = Model()
        self._namespace = f"chaos-{options.seed}"
        self._devices: dict[str, set[str]] = {}
        """The devices of each driver that has some, as `pool/device`."""
        self._services = ServiceRun(client, self._namespace, history, options.limits, faults.namespaces)
        self._number = 0
        self._fault_count = 0

    async def play(self) -> Result:
        await self._set_up()
        end, rounds = time.monotonic() + self._options.duration, 0
        try:
            while rounds == 0 or time.monotonic() < end:
                rounds += 1
                await self._round(rounds, min(self._limits.round, max(1.0, end - time.monotonic())))
            await self._tear_down()
        finally:
            self._faults.heal()
        return Result(rounds=rounds, pods=self._number, faults=self._fault_count)

    # Steps

    async def _round(self, number: int, seconds: float) -> None:
        self._history.add(f"round {number}")
        begin = time.monotonic()
        async with self._observed(), asyncio.TaskGroup() as tasks:
            for step in planned(self._options.seed, number, seconds, self._options.faults):
                await asyncio.sleep(max(0.0, begin + step.at - time.monotonic()))
                tasks.create_task(self._step(step))
        self._faults.heal()
        await self._quiet()

    async def _step(self, step: Step) -> None:
        if step.action == "create" and len(self._model.alive()) < MOST_PODS:
            self._number += 1
            await self._create(f"pod-{self._number}", self._claimed_driver(step))
        elif step.action in ("create-service", "delete-service", "write"):
            await self._services.carry_out(step)
        elif step.action in ("create", "delete"):  # what earlier rounds left counts, too
            if pods := self._model.acknowledged():
                await self._delete(pods[int(step.pick * len(pods))], step.grace)
        else:
            self._fault_count += 1
            try:
                await self._faults.carry_out(step)
            except CannotRestart as error:
                raise Violation("the cluster does not start any more", [str(error)]) from error

    def _claimed_driver(self, step: Step) -> str:
        """Returns the driver of which the pod claims a device; empty for none, and while all may be claimed."""
        if not step.with_claim or not self._devices:
            return ""
        driver = sorted(self._devices)[int(step.pick * len(self._devices))]
        return driver if self._model.claimants(driver) < len(self._devices[driver]) else ""

    async def _create(self, name: str, driver: str) -> None:
        self._model.asked(name, driver)
        group = str(self._number % GROUPS)
        pod = manifests.pod(name, self._namespace, group, DRIVERS.get(driver, ""))
        created = await until_answered(self._limits, lambda: self._client.create(pod))
        if created is None:  # it exists: an earlier request was carried out
            created = await until_answered(self._limits, lambda: self._client.get(PODS, name, self._namespace))
        if created is not None:
            self._model.created(name, created["metadata"]["uid"])
            self._history.add(f"created {name}{f' with a claim for {driver}' if driver else ''}", name)

    async def _delete(self, name: str, grace: int) -> None:
        self._model.deleting(name)
        self._history.add(f"deletes {name} with {grace} s of grace", name)
        await until_answered(
            self._limits, lambda: self._client.delete(PODS, name, self._namespace, grace_seconds=grace)
        )

    # Checks

    @contextlib.asynccontextmanager
    async def _observed(self) -> AsyncIterator[None]:
        """Compares lists with the model while the context is open."""
        async with asyncio.TaskGroup() as tasks:
            observing = tasks.create_task(self._observe_often())
            yield
            observing.cancel()

    async def _observe_often(self) -> None:
        while True:
            await self._observe()
            await asyncio.sleep(self._limits.list)

    async def _observe(self) -> tuple[list[Any], list[Any]] | None:
        """Lists pods and claims; returns None without an answer. Raises Violation."""
        scope = Scope(namespace=self._namespace)
        known = frozenset(self._model.acknowledged())
        try:
            claims = (await self._client.list(CLAIMS, scope)).items
            pods = (await self._client.list(PODS, scope)).items
        except (ApiError, ClientError):
            return None
        wrong = [*self._model.observe(pods, claims, known=known), *await self._services.observe()]
        if wrong:
            raise Violation("the API server contradicts what it said before", wrong)
        return [*pods], [*claims]

    async def _quiet(self) -> None:
        """Waits until everything is as it should be."""
        end, shown = time.monotonic() + self._limits.quiet, ""
        while waiting := await self._unfinished():
            if time.monotonic() > end:
                raise Violation(f"{self._limits.quiet:g} s after the last fault", waiting)
            if waiting[0] != shown:
                shown = waiting[0]
                self._history.add(f"waits: {shown}")
            await asyncio.sleep(self._limits.list)
        self._services.quiet()
        self._history.add(f"quiet: {len(self._model.alive())} pods run")

    async def _unfinished(self) -> list[str]:
        if not self._faults.is_up():
            return ["a component is not ready"]
        if (listed := await self._observe()) is None:
            return ["the API server does not answer"]
        pods, claims = listed
        try:
            return await self._differences(pods, claims)
        except (ApiError, ClientError) as error:
            return [f"the API server does not answer: {error}"]

    async def _differences(self, pods: list[Any], claims: list[Any]) -> list[str]:
        nodes = [node_objects.read(node) for node in (await self._client.list(NODES)).items]
        conditions = [condition for node in nodes if (condition := node.condition("DiskPressure")) is not None]
        pressure = any(condition.status == "True" for condition in conditions)
        if waiting := self._model.unfinished(pods, claims, under_pressure=pressure):
            return waiting
        if waiting := await self._services.unfinished(pods):
            return waiting
        everybody = (await self._client.list(PODS)).items  # pods of others have addresses, too
        leased = await asyncio.to_thread(self._options.leases)
        own = addresses(pod for pod in pods if is_running(pod))
        wrong = [f"address {address} is leased, and no pod has it" for address in sorted(leased - addresses(everybody))]
        wrong += [f"address {address} of a pod is not leased" for address in sorted(own - leased)]
        claimed = allocated_devices(claims)  # one in a pod whose record is lost is published when it is back
        for driver, devices in (await self._published()).items():
            first = self._devices.get(driver, set())
            lost = {device for device in first - devices if f"{driver}/{device}" not in claimed}
            wrong += [f"device {device} of {driver} is no longer published" for device in sorted(lost)]
            wrong += [
                f"device {device} of {driver} is published and did not exist" for device in sorted(devices - first)
            ]
        return wrong or await asyncio.to_thread(self._options.leftovers)

    # Begin and end

    async def _set_up(self) -> None:
        await until_answered(self._limits, lambda: self._client.create(manifests.namespace(self._namespace)))
        account = partial(self._client.get, ACCOUNTS, "default", self._namespace)
        while await until_answered(self._limits, account) is None:  # noqa: ASYNC110 - another program creates it
            await asyncio.sleep(self._limits.retry)
        await self._services.set_up()
        self._devices = {driver: devices for driver, devices in (await self._published()).items() if devices}
        for driver in self._devices:
            for obj in (manifests.device_class(driver), manifests.template(self._namespace, driver)):
                await until_answered(self._limits, partial(self._client.create, obj))
        counts = [f"{len(devices)} devices of {driver}" for driver, devices in self._devices.items()]
        self._history.add(" with ".join([f"begin in namespace {self._namespace}", *counts]))

    async def _published(self) -> dict[str, set[str]]:
        """Returns the devices of our drivers, as `pool/device`."""
        devices: dict[str, set[str]] = {driver: set() for driver in DRIVERS}
        for item in (await self._client.list(SLICES)).items:
            spec = item["spec"]
            if spec["driver"] in devices:
                names = {f"{spec['pool']['name']}/{device['name']}" for device in spec.get("devices") or ()}
                devices[spec["driver"]] |= names
        return devices

    async def _tear_down(self) -> None:
        for name in self._model.alive():
            await self._delete(name, 0)
        await self._services.tear_down()
        await self._quiet()
        await until_answered(self._limits, lambda: self._client.delete(NAMESPACES, self._namespace))
        for driver in self._devices:
            await until_answered(self._limits, partial(self._client.delete, CLASSES, DRIVERS[driver]))
