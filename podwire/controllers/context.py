"""All that a controller is handed, and the interface that it implements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import KnownKinds
from podwire.controllers.limits import DEFAULT, Limits
from podwire.controllers.metadata import PartialObject
from podwire.interfaces import Clock
from podwire.objects.nodes import Taint
from podwire.objects.pod_networks import PodNetwork
from podwire.protocols.k8sapi.client_side import Client


def _ignore_taints(_node: str, _taints: Sequence[Taint]) -> None:
    """Nobody evicts."""


class Signer(Protocol):
    """Signs certificate requests; the cluster hands in its authority."""

    def knows(self, signer: str) -> bool:
        """Returns whether it signs for a signerName."""
        ...

    def is_for_kubelet(self, request: bytes, usages: Sequence[str]) -> str:
        """Returns the name of the node's user if a request is one for a kubelet's client certificate; else empty."""
        ...

    def is_for_component(self, request: bytes, usages: Sequence[str], node: str) -> bool:
        """Returns whether a request is one for a client certificate of a component of a node."""
        ...

    def serving_names(self, request: bytes, usages: Sequence[str], user: str) -> tuple[str, ...]:
        """Returns the names and addresses of a request for the serving certificate of a node's user; none if it is not
        one."""
        ...

    def sign(self, signer: str, request: bytes, usages: Sequence[str], seconds: int | None) -> bytes:
        """Returns a certificate as PEM. Raises ValueError."""
        ...


class TokenSigner(Protocol):
    """Signs the tokens of Secrets; the cluster hands in the key of service accounts."""

    def sign(self, namespace: str, name: str, uid: str, secret: str) -> str:
        """Returns a token for a service account that is valid as long as the Secret contains it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    api: Client
    graph: Graph
    """All objects: metadata, and the JSON of the kinds that some controller reads whole."""
    kinds: KnownKinds
    clock: Clock
    root_ca: str = ""
    signer: Signer | None = None
    """None: certificate requests are neither approved nor signed."""
    token_signer: TokenSigner | None = None
    """None: Secrets for tokens are not filled."""
    limits: Limits = DEFAULT
    balancer_pool: Sequence[IPv4Network | IPv6Network] = ()
    """Addresses for Services of type LoadBalancer; empty: somebody else gives them."""
    pod_networks: Sequence[PodNetwork] = ()
    """Of which each node gets a part; empty: somebody else gives nodes the networks of their pods."""
    tainted: Callable[[str, Sequence[Taint]], None] = _ignore_taints
    """Called with the taints of each node."""


class Controller(Protocol):
    @property
    def resources(self) -> frozenset[tuple[str, str]] | None:
        """The resources whose changes it receives; None: all."""
        ...

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        """Called for each change: created (`before` None), updated, or deleted (`now` None); the graph is already
        updated."""
        ...

    def on_synced(self) -> None:
        """Called when all objects are known; again when new kinds were added."""
        ...

    async def run(self) -> None:
        """Runs until cancelled."""
        ...
