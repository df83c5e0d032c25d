"""Runs the controllers against any API server, over HTTP; imports nothing of the API server unless it has to sign."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from podwire import controllers
from podwire.cluster import component_endpoints, tracing
from podwire.cluster.client_metrics import MeteredHttp, host_of
from podwire.cluster.component_endpoints import Endpoint
from podwire.controllers import work_queue
from podwire.controllers.context import Signer, TokenSigner
from podwire.controllers.leader_election import Election, LostLease
from podwire.controllers.registry import ALL
from podwire.linux.values import Network
from podwire.objects.pod_networks import PodNetwork
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.prometheus import Metrics
from podwire.trace.participants import API_SERVER, CONTROLLERS
from podwire.transports import http_client
from podwire.transports.clock import SystemClock

_log = logging.getLogger("podwire.controllers")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """Files with the keys of the cluster, as kube-controller-manager has them; None: their controllers are off."""

    signing_certificate: Path | None = None
    signing_key: Path | None = None
    account_key: Path | None = None

    def read(self) -> "Keys":
        """Reads the files. Raises OSError and ValueError."""
        signer = tokens = None
        if self.signing_certificate is not None and self.signing_key is not None:
            from podwire.apiserver.identity import request_signing as requests  # noqa: PLC0415 - costs memory

            signer = requests.RequestSigner(requests.FileAuthority.read(self.signing_certificate, self.signing_key))
        if self.account_key is not None:
            from podwire.apiserver.identity import legacy_tokens  # noqa: PLC0415 - costs memory

            tokens = legacy_tokens.LegacyTokenSigner(legacy_tokens.read_key(self.account_key))
        return Keys(signer, tokens)


@dataclass(frozen=True, slots=True)
class Keys:
    """Signers with the keys of the cluster."""

    signer: Signer | None = None
    token_signer: TokenSigner | None = None


async def over_http(
    access: Access,
    root_ca: str,
    names: frozenset[str] = ALL,
    election: Election | None = None,
    endpoint: Endpoint | None = None,
    keys: Keys | None = None,
    balancer_pool: Sequence[Network] = (),
    pod_networks: Sequence[PodNetwork] = (),
) -> None:
    """Works until cancelled; a server that does not answer is retried. Starts again when the lease is lost."""
    keys = keys or Keys()
    tap = tracing.api_tap(CONTROLLERS)
    metrics = Metrics()
    metrics.collect(work_queue.METRICS.lines)
    endpoint = endpoint and replace(endpoint, client_ca=access.ca)
    async with (
        http_client.connect(access, user_agent="podwire-controllers", tap=tap, callee=API_SERVER) as http,
        component_endpoints.serving(endpoint, Client(http), metrics, SystemClock()),
    ):
        client = Client(MeteredHttp(http, metrics, host_of(access.server)))
        _log.info("controllers are running", extra={"url": access.server})
        while True:
            feed = controllers.MetadataInformer(client)
            try:
                await controllers.run(
                    client,
                    feed,
                    SystemClock(),
                    root_ca=root_ca,
                    names=names,
                    election=election,
                    signer=keys.signer,
                    token_signer=keys.token_signer,
                    balancer_pool=balancer_pool,
                    pod_networks=pod_networks,
                )
            except* LostLease as lost:
                _log.warning("controllers lost their lease", extra={"error": str(lost.exceptions[0])})
