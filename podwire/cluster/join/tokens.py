"""Creates, lists and deletes the bootstrap tokens of a running cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509

from podwire.cluster.join import permissions
from podwire.cluster.join.permissions import CONFIG_MAPS, SECRETS
from podwire.protocols.k8sapi.bootstrap_tokens import (
    INFO_NAME,
    INFO_NAMESPACE,
    KUBECONFIG_KEY,
    NAMESPACE,
    TYPE,
    BadToken,
    TokenRecord,
    authority_of,
    ca_cert_hash,
    read_secret,
    secret_of,
    server_of,
)
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.status import ApiError


@dataclass(frozen=True, slots=True)
class Invitation:
    """All that a machine needs to join."""

    server: str
    token: str
    hashes: tuple[str, ...]

    @property
    def command(self) -> str:
        flags = " ".join(f"--ca-cert-hash {hash_}" for hash_ in self.hashes)
        return f"podwire join {self.server} --token {self.token} {flags}"


async def create(api: Client, record: TokenRecord, server: str, ca: str) -> Invitation:
    """Creates a token, and before it what every joining machine needs. Raises ApiError, BadToken.

    The server in `cluster-info` stays what it is: who started the cluster knows its address.
    """
    published = await _published(api)
    if published is None:
        await permissions.ensure(api, server, ca)
        published = (server, ca)
    else:
        for object_ in permissions.rights():
            await permissions.create_missing(api, object_)
    await api.create(secret_of(record))
    authorities = x509.load_pem_x509_certificates(published[1].encode())
    return Invitation(published[0], str(record.token), tuple(map(ca_cert_hash, authorities)))


async def _published(api: Client) -> tuple[str, str] | None:
    """Returns the server and the CA of `cluster-info`; None if there is none."""
    try:
        info = await api.get(CONFIG_MAPS, INFO_NAME, INFO_NAMESPACE)
    except ApiError as error:
        if error.code != 404:
            raise
        return None
    content = (info.get("data") or {}).get(KUBECONFIG_KEY, "")
    return server_of(content), authority_of(content)


async def listed(api: Client) -> Sequence[TokenRecord]:
    """Returns the valid tokens by their ids."""
    scope = Scope(namespace=NAMESPACE, field_selector=f"type={TYPE}")
    records = []
    for secret in (await api.list(SECRETS, scope)).items:
        try:
            records.append(read_secret(secret))
        except BadToken:
            continue
    return sorted(records, key=lambda record: record.token.id)


async def delete(api: Client, name: str) -> None:
    """Deletes the token with the name of its Secret. Raises ApiError."""
    await api.delete(SECRETS, name, NAMESPACE)
