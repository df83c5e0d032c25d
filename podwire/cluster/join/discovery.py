"""Finds out which CA a cluster has, before anything can be trusted: kubeadm's token-based discovery.

1. Read `cluster-info` without verifying the server: nothing secret is sent.  2. Its signature must be the token's.
3. Its CA must have the hash that the operator gives.  4. Read it once more from a server with a certificate of this CA:
the answer must be the same.
"""

from dataclasses import replace

from cryptography.hazmat.primitives.serialization import Encoding

from podwire.cluster.join.permissions import CONFIG_MAPS
from podwire.protocols.k8sapi.bootstrap_tokens import (
    INFO_NAME,
    INFO_NAMESPACE,
    BadToken,
    Token,
    authority_of,
    matching_authorities,
    verified_kubeconfig,
)
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access, Pem
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import http_client

USER_AGENT = "podwire-join"


class NotTrusted(Exception):
    """The server is not the one that the operator means, or cannot be told from another one."""


async def discover(server: str, token: Token, hashes: tuple[str, ...]) -> Access:
    """Returns the access of the token to a verified server; without hashes, the token alone vouches for the CA.

    Raises NotTrusted, ApiError, ClientError.
    """
    unverified = Access(server=server, verify=False)
    content = await _read(unverified, token)
    try:
        authority = authority_of(content)
    except BadToken as error:
        raise NotTrusted(str(error)) from error
    if hashes:
        matching = _matching(authority, hashes)
        if not matching:
            raise NotTrusted(f"the CA of {server} does not have the hash {', '.join(hashes)}: it is not this cluster")
        authority = "".join(matching)
    access = replace(unverified, verify=True, ca=Pem(authority))
    if await _read(access, token) != content:
        raise NotTrusted(f"{server} answers differently when it is verified")
    return replace(access, token=str(token))


def _matching(authority: str, hashes: tuple[str, ...]) -> list[str]:
    try:
        return [row.public_bytes(Encoding.PEM).decode() for row in matching_authorities(authority, hashes)]
    except BadToken as error:
        raise NotTrusted(str(error)) from error


async def _read(access: Access, token: Token) -> str:
    async with http_client.connect(access, user_agent=USER_AGENT) as http:
        try:
            info = await Client(http).get(CONFIG_MAPS, INFO_NAME, INFO_NAMESPACE)
        except ApiError as error:
            if error.code not in (401, 403, 404):
                raise
            raise NotTrusted(f"{access.server} has no cluster-info: create a token there first ({error})") from error
    try:
        return verified_kubeconfig(info.get("data") or {}, token)
    except BadToken as error:
        raise NotTrusted(str(error)) from error
