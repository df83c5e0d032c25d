"""Renews the ID token of a kubeconfig's auth-provider `oidc`, and writes the new tokens to the kubeconfig."""

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from yarl import URL

from podwire.durable.files import write_durably
from podwire.protocols.k8sapi import oidc
from podwire.protocols.k8sapi.client_side import NoCredentials
from podwire.protocols.k8sapi.exec_credential import BadCredential, Credential
from podwire.protocols.k8sapi.oidc import OidcProvider
from podwire.transports.credentials import read_bounded
from podwire.transports.tls import client_context

ISSUER_SECONDS = 30.0


async def renew_tokens(provider: OidcProvider, *, seconds: float = ISSUER_SECONDS) -> OidcProvider:
    """Returns the provider with an ID token that is valid. Raises NoCredentials."""
    if not provider.refresh_token:
        raise NoCredentials(f"user {provider.user}: no valid id-token, and cannot refresh without refresh-token")
    try:
        context = client_context(ca=provider.ca_file or None, ca_data=provider.ca_text or None)
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            status, document = await _ask(session, "GET", provider.metadata_url, context)
            if status != 200:
                raise BadCredential(f"failed to query metadata endpoint: HTTP {status}")
            endpoint = oidc.token_endpoint(document)
            for in_header in (True, False):
                headers, form = oidc.refresh_request(provider, in_header=in_header)
                status, answer = await _ask(session, "POST", endpoint, context, headers, form)
                if status == 200:
                    break
        if status != 200:
            raise BadCredential(f"failed to refresh token: HTTP {status}")
        new = oidc.renewed(provider, answer)
        oidc.expiry(new.id_token)
    except (aiohttp.ClientError, OSError, ValueError) as error:  # BadCredential among them
        raise NoCredentials(f"OIDC issuer {provider.issuer}: {error or type(error).__name__}") from error
    await asyncio.to_thread(_persist, new)
    return new


def credential(provider: OidcProvider) -> Credential | None:
    """Returns the ID token that the user has, expired or not. Raises NoCredentials."""
    try:
        return oidc.credential(provider)
    except BadCredential as error:
        raise NoCredentials(f"user {provider.user}: {error}") from None


async def _ask(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    context: Any,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, bytes]:
    async with session.request(
        method, URL(url), ssl=context, headers=headers, data=body, allow_redirects=False
    ) as response:
        answer = b""
        async for chunk in response.content.iter_any():
            answer += chunk
            if len(answer) > oidc.MAX_ANSWER:
                raise BadCredential(f"the answer has more than {oidc.MAX_ANSWER} bytes")
        return response.status, answer


def _persist(provider: OidcProvider) -> None:
    """Writes the tokens to the kubeconfig: an issuer may accept a refresh token only once.

    The lock file is kubectl's, which writes to the same file.
    """
    path = Path(provider.file).resolve()
    lock = path.with_name(f"{path.name}.lock")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            document = yaml.safe_load(read_bounded(path))
            user = next(entry["user"] for entry in document["users"] if entry["name"] == provider.user)
            config = user["auth-provider"]["config"]
            config |= {"id-token": provider.id_token, "refresh-token": provider.refresh_token}
            write_durably(path, yaml.safe_dump(document, sort_keys=False).encode())
        finally:
            lock.unlink()
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, StopIteration) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NoCredentials(f"{provider.file}: could not persist new tokens: {reason}") from error
