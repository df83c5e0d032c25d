"""The identities of a node that joined: one file for the kubelet, its server and each component, and their renewal."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from podwire.cluster.join import certificates
from podwire.cluster.join.certificates import Issued, Renewed, Subject, keep_renewed
from podwire.cluster.join.permissions import CONFIG_MAPS
from podwire.cluster.join.settings import NAME, NAMESPACE, ClusterSettings, from_data
from podwire.cluster.up.layout import Layout
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials, http_client
from podwire.transports.certificates import self_signed

USER_AGENT = "podwire-join"
COMPONENTS = ("nri-network", "local-path")


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The files of one node."""

    layout: Layout
    node: str

    @property
    def kubelet(self) -> Path:
        return self.layout.identity("kubelet")

    @property
    def serving(self) -> Path:
        """Certificate and key of the kubelet's server."""
        return self.layout.state / "kubelet/serving.pem"

    def subjects(self) -> dict[Path, Subject]:
        """Returns the clients of the API server besides the kubelet, with their kubeconfigs."""
        rows = {self.layout.identity(name): certificates.component(name, self.node) for name in COMPONENTS}
        return {self.layout.identity("proxy"): certificates.PROXY, **rows}

    def is_valid(self) -> bool:
        """Whether the kubelet has a certificate that has not expired."""
        certificate = _in_kubeconfig(self.kubelet)
        return certificate is not None and certificate.not_valid_after_utc.timestamp() > time.time()

    async def bootstrap(self, access: Access) -> None:
        """Requests the kubelet's certificate with a token. Raises NotSigned, ApiError, ClientError."""
        async with http_client.connect(access, user_agent=USER_AGENT) as http:
            issued = await certificates.request_certificate(Client(http), certificates.kubelet(self.node))
        self._write_access(self.kubelet, access, issued)

    async def complete(self, addresses: tuple[str, ...]) -> None:
        """Requests what is missing, as the node itself. Raises NotSigned, ApiError, ClientError."""
        access = credentials.load(self.kubelet)
        async with self.connect() as api:
            for path, subject in self.subjects().items():
                if _in_kubeconfig(path) is None:
                    self._write_access(path, access, await certificates.request_certificate(api, subject))
        if not self.serving.exists():  # until the Node has its addresses, for which one is approved
            self_signed(self.serving, self.node, addresses)

    async def settings(self) -> ClusterSettings:
        """Reads the settings of the cluster; one without any has defaults. Raises ApiError, BadSettings."""
        async with self.connect() as api:
            try:
                data = (await api.get(CONFIG_MAPS, NAME, NAMESPACE)).get("data") or {}
            except ApiError as error:
                if error.code != 404:
                    raise
                data = {}
        return from_data(data)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        """Calls the API server as the node."""
        async with http_client.connect(credentials.load(self.kubelet), user_agent=USER_AGENT) as http:
            yield Client(http)

    async def keep_renewed(self, addresses: Callable[[], tuple[str, ...]]) -> None:
        """Keeps all certificates valid until cancelled; the kubelet's server has those addresses."""

        def client(path: Path, subject: Subject) -> Renewed:
            return Renewed(
                subject=lambda: subject,
                path=path,
                read=_in_kubeconfig,
                write=lambda issued: self._write_access(path, credentials.load(self.kubelet), issued),
            )

        rows = [client(path, subject) for path, subject in self.subjects().items()]
        rows.append(client(self.kubelet, certificates.kubelet(self.node)))
        rows.append(
            Renewed(
                subject=lambda: certificates.serving(self.node, addresses()),
                path=self.serving,
                read=_first,
                write=lambda issued: certificates.write_pair(self.serving, issued),
            )
        )
        async with asyncio.TaskGroup() as tasks:
            for row in rows:
                tasks.create_task(keep_renewed(row, self.connect))

    def _write_access(self, path: Path, access: Access, issued: Issued) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        certificates.write_access(path, access, issued)


def _in_kubeconfig(path: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(credentials.load(path).certificate.text.encode())
    except (BadKubeconfig, ValueError):
        return None


def _first(path: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return None
