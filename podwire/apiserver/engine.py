"""Dependencies of the verbs: store, registry, identity, writers, clock, limits."""

from collections.abc import Callable
from dataclasses import dataclass, field

from podwire.apiserver.admission import Admission
from podwire.apiserver.identity.authentication import Authenticator
from podwire.apiserver.identity.authorization import Authorizer
from podwire.apiserver.identity.tokens import Tokens
from podwire.apiserver.limits import Limits
from podwire.apiserver.ports import Backends, Kubelets, Store
from podwire.apiserver.registry import Registry
from podwire.apiserver.request.encodings import ProtobufItems
from podwire.apiserver.resource_metrics import UsageSampler
from podwire.apiserver.write.creation import Creator
from podwire.apiserver.write.deletion import Deleter
from podwire.apiserver.write.field_managers import Tracker
from podwire.apiserver.write.updates import Updater
from podwire.interfaces import Clock
from podwire.kinds.resource import Resource
from podwire.kinds.schema import Schemas
from podwire.kinds.shape import Shape
from podwire.kinds.stored import Object


@dataclass(frozen=True, slots=True)
class Identity:
    """Authentication, authorization and tokens."""

    authenticator: Authenticator
    authorizer: Authorizer
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Engine:
    """Passed to every verb."""

    store: Store
    registry: Registry
    schemas: Schemas
    identity: Identity
    clock: Clock
    limits: Limits
    creator: Creator
    updater: Updater
    deleter: Deleter
    tracker: Tracker
    admission: Admission
    usage: UsageSampler
    """The usage of nodes and their pods, read when somebody asks."""
    kubelets: Kubelets | None = None
    """None where kubelets cannot be reached."""
    converting: dict[tuple[str, str, str], "Engine"] = field(default_factory=dict)
    """Engines for requests whose objects a webhook converts, by group, version and resource; see conversion.py."""
    backends: Backends | None = None
    """None where pods cannot be reached."""
    protobuf_items: ProtobufItems = field(default_factory=ProtobufItems)

    @classmethod
    def build(
        cls,
        *,
        store: Store,
        registry: Registry,
        schemas: Schemas,
        identity: Identity,
        admission: Admission,
        clock: Clock,
        limits: Limits,
        generate_name: Callable[[str], str],
        kubelets: Kubelets | None = None,
        backends: Backends | None = None,
    ) -> "Engine":
        tracker = Tracker(registry, clock)
        return cls(
            store=store,
            registry=registry,
            schemas=schemas,
            identity=identity,
            clock=clock,
            limits=limits,
            creator=Creator(store, admission, clock, tracker, generate_name),
            updater=Updater(store, admission, tracker),
            deleter=Deleter(store, admission, clock),
            tracker=tracker,
            admission=admission,
            usage=UsageSampler(kubelets, clock),
            kubelets=kubelets,
            backends=backends,
        )

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """Returns an object; None when it does not exist."""
        item = await self.store.get(resource.key(namespace, name))
        return resource.unpack(item) if item else None

    def shape(self, api_version: str, kind: str) -> Shape:
        """Returns the schema of a kind that has no resource of its own."""
        found = self.schemas.shape(api_version, kind)
        if found is None:
            raise LookupError(f"the installed schemas lack {api_version} {kind}")
        return found
