"""The plugin put together."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.nriplugins.network.informers import Informers
from podwire.nriplugins.network.kinds import POLICIES
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.named_resources import NamedReader
from podwire.nriplugins.network.plugin import NetworkPlugin
from podwire.nriplugins.network.policy_enforcer import PolicyEnforcer, VerdictCount
from podwire.nriplugins.network.ports import Api, Trace
from podwire.nriplugins.network.reconciler import NetworkReconciler
from podwire.nriplugins.network.status_writer import Statuses
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.prometheus import Labels

COMPONENT = "podwire-nri-network"
"""How API servers and people know it."""


@dataclass(frozen=True, slots=True)
class Parts:
    plugin: NetworkPlugin
    watches: Informers
    keeper: NetworkReconciler
    policing: PolicyEnforcer
    statuses: Statuses
    events: Recorder
    meter: Meter

    async def run(self) -> None:
        """Work until cancelled, beside the plugin's connection to the runtime."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.watches.run(), name="watches")
            parts.create_task(self.keeper.run(self.watches.complete), name="keeper")
            parts.create_task(self.statuses.run(), name="statuses")
            parts.create_task(self.events.run(), name="events")

    def close(self) -> None:
        """What is in the kernel stays: pods are judged by it until somebody is here again."""
        self.keeper.close()
        self.policing.close()

    def lacking(self) -> list[str]:
        """Why a new pod cannot be judged; nothing when it can."""
        missing = self.watches.missing
        return [
            *([f"not listed yet: {', '.join(missing)}"] if missing else []),
            *([] if self.plugin.ready.is_set() else ["no runtime is connected"]),
        ]

    async def metrics(self) -> str:
        """For Prometheus. Raises LinuxError."""
        facts = await self.keeper.facts()
        kinds = {POLICIES.kind: facts.policies, **self.keeper.known.counts()}
        gauges: dict[str, tuple[str, Iterable[tuple[Labels, float]]]] = {
            "pods": ("Pods of this node with a network of their own", [((), len(self.keeper.locals))]),
            "refused_pods": ("Pods that could not have what they must", [((), len(self.keeper.refused))]),
            "resources": ("Resources that are known", [((("kind", kind),), count) for kind, count in kinds.items()]),
            "broken_policies": ("Policies that cannot be followed, and close what they select", [((), facts.broken)]),
            "ready": ("Whether new pods can be judged", [((), 0 if self.lacking() else 1)]),
            "verdicts_total": ("Packets that open connections", map(_verdict, facts.judged)),
        }
        return self.meter.text(gauges)


def _verdict(judged: VerdictCount) -> tuple[Labels, float]:
    labels = (
        ("namespace", judged.namespace),
        ("pod", judged.name),
        ("direction", judged.direction),
        ("verdict", "allowed" if judged.allowed else "denied"),
    )
    return labels, judged.packets


def assemble(api: Api, clock: Clock, trace: Trace, *, node: str, netns: str | None = None) -> Parts:
    """All of it, not running yet; `netns` is the node's network namespace, by default the caller's own."""
    meter, events = Meter(), Recorder(api, clock, component=COMPONENT, host=node)
    policing, statuses = PolicyEnforcer(netns), Statuses(api, clock, node)
    keeper = NetworkReconciler(policing=policing, statuses=statuses, events=events, meter=meter, now=clock.monotonic)
    watches = Informers(api, keeper.heard, clock.monotonic)
    statuses.look_at(lambda: (*keeper.locals.values(), *keeper.refused.values()), watches.find)
    reader = NamedReader(api, watches, trace, meter)
    plugin = NetworkPlugin(keeper, watches, reader, trace=trace, meter=meter, now=clock.monotonic)
    return Parts(plugin, watches, keeper, policing, statuses, events, meter)
