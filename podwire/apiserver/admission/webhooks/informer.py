"""Informer of webhook configurations: each takes effect when it is stored and stops when it is deleted."""

import asyncio
import logging
from functools import partial

from podwire.apiserver.admission.policies.requests import Versions
from podwire.apiserver.admission.webhooks.metrics import WebhookMetrics
from podwire.apiserver.admission.webhooks.plugin import MutatingWebhooks, ValidatingWebhooks, Webhooks
from podwire.apiserver.ports import Store
from podwire.apiserver.read.informer import follow
from podwire.apiserver.request import offload
from podwire.apiserver.webhook_calls import WebhookCalls
from podwire.interfaces import Clock
from podwire.kinds.policies.webhook import Webhook, webhooks_of
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import unpack
from podwire.protocols.prometheus import Metrics
from podwire.protocols.storage import Change, Item

_log = logging.getLogger("podwire.apiserver.webhooks")


class WebhookInformer:
    """Follows the configurations of both types."""

    def __init__(self, store: Store, mutating: MutatingWebhooks, validating: ValidatingWebhooks) -> None:
        self._store = store
        self.mutating, self.validating = mutating, validating
        self._followed = [
            _Configurations(f"{PREFIX}mutatingwebhookconfigurations/", mutating),
            _Configurations(f"{PREFIX}validatingwebhookconfigurations/", validating),
        ]

    @classmethod
    def build(
        cls, store: Store, versions: Versions, calls: WebhookCalls, clock: Clock, metrics: Metrics
    ) -> "WebhookInformer":
        """Makes both plugins and what keeps them up to date."""
        counts = WebhookMetrics(metrics)
        return cls(
            store,
            MutatingWebhooks(versions, calls, clock, counts),
            ValidatingWebhooks(versions, calls, clock, counts),
        )

    async def load(self) -> None:
        """Activates the stored configurations; called once before the server answers."""
        for configurations in self._followed:
            await configurations.on_list(list((await self._store.list(configurations.prefix)).items))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for followed in self._followed:
                parts.create_task(follow(self._store, followed.prefix, followed.on_list, followed.on_change))


class _Configurations:
    """The configurations of one type, by name, which is the order in which their webhooks are called."""

    def __init__(self, prefix: str, plugin: Webhooks) -> None:
        self.prefix = prefix
        self._plugin = plugin
        self._webhooks: dict[str, tuple[Webhook, ...]] = {}

    async def on_list(self, items: list[Item]) -> None:
        self._webhooks = {item.key: await offload.for_size(len(item.value), partial(_compiled, item)) for item in items}
        self._activate()

    async def on_change(self, change: Change) -> None:
        if (item := change.item) is None:
            self._webhooks.pop(change.key, None)
        else:
            self._webhooks[change.key] = await offload.for_size(len(item.value), partial(_compiled, item))
        self._activate()

    def _activate(self) -> None:
        self._plugin.replace(webhook for _, webhooks in sorted(self._webhooks.items()) for webhook in webhooks)


def _compiled(item: Item) -> tuple[Webhook, ...]:
    try:
        return webhooks_of(unpack(item))
    except (LookupError, TypeError, ValueError):  # stored before it was validated: the others stay active
        _log.exception("cannot compile webhook configuration", extra={"key": item.key})
        return ()
