"""Wires the network plugin."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.nriplugins.network.informers import Informers
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.named_resources import NamedReader
from podwire.nriplugins.network.plugin import NetworkPlugin
from podwire.nriplugins.network.policy_enforcer import PolicyEnforcer, VerdictCount
from podwire.nriplugins.network.ports import DEFAULT_LIMITS, Limits, Trace
from podwire.nriplugins.network.reconciler import NetworkReconciler
from podwire.nriplugins.network.status_writer import Statuses
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.prometheus import Labels

COMPONENT = "podwire-nri-network"
"""The component's name in events and requests."""


@dataclass(frozen=True, slots=True)
class Parts:
    plugin: NetworkPlugin
    informers: Informers
    reconciler: NetworkReconciler
    enforcer: PolicyEnforcer
    statuses: Statuses
    events: Recorder
    meter: Meter

    async def run(self) -> None:
        """Runs informers, reconciler, status writer and event recorder until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.informers.run(), name="watches")
            parts.create_task(self.reconciler.run(self.informers.complete), name="reconciler")
            parts.create_task(self.statuses.run(), name="statuses")
            parts.create_task(self.events.run(), name="events")

    def close(self) -> None:
        """Leaves the kernel as it is: policies stay enforced until the plugin runs again."""
        self.reconciler.close()
        self.enforcer.close()

    def lacking(self) -> list[str]:
        """Why a new pod would be refused; empty when it would not."""
        missing = self.informers.missing
        return [
            *([f"not listed yet: {', '.join(missing)}"] if missing else []),
            *([] if self.plugin.ready.is_set() else ["no runtime is connected"]),
        ]

    async def metrics(self) -> str:
        """For Prometheus. Raises LinuxError."""
        facts = await self.reconciler.facts()
        kinds = {**facts.policies, **self.reconciler.known.counts()}
        gauges: dict[str, tuple[str, Iterable[tuple[Labels, float]]]] = {
            "pods": ("Pods of this node with a network of their own", [((), len(self.reconciler.sandboxes))]),
            "refused_pods": ("Pods that could not have what they must", [((), len(self.reconciler.refused))]),
            "resources": ("Resources that are known", [((("kind", kind),), count) for kind, count in kinds.items()]),
            "broken_policies": ("Policies that cannot be followed, and close what they select", [((), facts.broken)]),
            "ready": ("Whether new pods can be admitted", [((), 0 if self.lacking() else 1)]),
            "verdicts_total": ("Packets that open connections", map(_verdict, facts.verdicts)),
        }
        return self.meter.text(gauges)


def _verdict(verdicts: VerdictCount) -> tuple[Labels, float]:
    labels = (
        ("namespace", verdicts.namespace),
        ("pod", verdicts.name),
        ("direction", verdicts.direction),
        ("verdict", "allowed" if verdicts.allowed else "denied"),
    )
    return labels, verdicts.packets


def assemble(
    api: Client,
    clock: Clock,
    trace: Trace,
    *,
    node: str,
    netns: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Parts:
    """Builds all parts; `netns` is the node's network namespace, by default the caller's own."""
    meter, events = Meter(), Recorder(api, clock, component=COMPONENT, host=node)
    enforcer, statuses = PolicyEnforcer(netns), Statuses(api, clock, node, limits)
    reconciler = NetworkReconciler(
        enforcer=enforcer, statuses=statuses, events=events, meter=meter, now=clock.monotonic, limits=limits
    )
    informers = Informers(api, reconciler.on_change, clock.monotonic, limits)
    statuses.look_up_in(lambda: (*reconciler.sandboxes.values(), *reconciler.refused.values()), informers.find)
    reader = NamedReader(api, informers, trace, meter, limits)
    plugin = NetworkPlugin(reconciler, informers, reader, trace=trace, meter=meter, now=clock.monotonic, limits=limits)
    return Parts(plugin, informers, reconciler, enforcer, statuses, events, meter)
