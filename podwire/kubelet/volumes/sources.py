"""Gets the objects and tokens of a volume and makes files of them."""

import asyncio
from collections.abc import Callable

from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.referenced_objects import NotSynced, ReferencedObjects
from podwire.kubelet.volumes import contents
from podwire.kubelet.volumes.contents import DEFAULT_MODE, Contents
from podwire.kubelet.volumes.errors import VolumeError, together
from podwire.kubelet.volumes.tokens import Tokens
from podwire.objects.pods import Pod
from podwire.objects.volumes import ConfigMapSource, KeyToPath, Projected, Projection, TokenSource, Volume
from podwire.protocols.k8sapi.watch import Object


class Sources:
    def __init__(self, references: ReferencedObjects, tokens: Tokens, node: Callable[[], NodeFacts]) -> None:
        self._references = references
        self._tokens = tokens
        self._node = node

    async def contents(self, pod: Pod, volume: Volume) -> Contents:
        """The present files of a volume. Raises VolumeError."""
        if (config_map := volume.config_map) is not None:
            return await self._config_map(pod, config_map, _mode(config_map.default_mode))
        if (secret := volume.secret) is not None:
            mode = _mode(secret.default_mode)
            return await self._secret(pod, secret.secret_name, secret.items, mode, optional=bool(secret.optional))
        if (downward := volume.downward_api) is not None:
            return contents.downward(pod, downward.items, _mode(downward.default_mode), self._node())
        return await self._projected(pod, volume.projected or Projected())

    async def _projected(self, pod: Pod, projected: Projected) -> Contents:
        """The files of all sources; of two with the same path the later one counts."""
        mode = _mode(projected.default_mode)
        pending = (self._projection(pod, source, mode) for source in projected.sources)
        results = await asyncio.gather(*pending, return_exceptions=True)
        failures = [str(result) for result in results if isinstance(result, VolumeError)]
        if failures:
            raise VolumeError(together(failures))
        files: dict[str, contents.File] = {}
        for result in results:
            if isinstance(result, BaseException):
                raise result
            files.update(result)
        return files

    async def _projection(self, pod: Pod, source: Projection, mode: int) -> Contents:
        if source.service_account_token is not None:
            return await self._token(pod, source.service_account_token, mode)
        if source.config_map is not None:
            return await self._config_map(pod, source.config_map, mode)
        if (secret := source.secret) is not None:
            return await self._secret(pod, secret.name, secret.items, mode, optional=bool(secret.optional))
        if source.downward_api is not None:
            return contents.downward(pod, source.downward_api.items, mode, self._node())
        kind = "clusterTrustBundle" if source.cluster_trust_bundle is not None else "this type"
        raise VolumeError(f"projected sources of {kind} are not supported by podwire")

    async def _token(self, pod: Pod, source: TokenSource, mode: int) -> Contents:
        path = contents.checked(source.path)
        return {path: contents.token_file(pod, await self._tokens.get(pod, source), mode)}

    async def _config_map(self, pod: Pod, source: ConfigMapSource, mode: int) -> Contents:
        optional = bool(source.optional)
        object_ = await self._object("ConfigMap", pod.namespace, source.name, optional=optional)
        data = contents.config_map_data(object_)
        return contents.selected(data, source.items, mode, optional=optional, word="config")

    async def _secret(
        self, pod: Pod, name: str, items: tuple[KeyToPath, ...], mode: int, *, optional: bool
    ) -> Contents:
        object_ = await self._object("Secret", pod.namespace, name, optional=optional)
        return contents.selected(contents.secret_data(object_), items, mode, optional=optional, word="secret")

    async def _object(self, kind: str, namespace: str, name: str, *, optional: bool) -> Object | None:
        try:
            object_ = await self._references.get(kind, namespace, name)
        except NotSynced as error:
            raise VolumeError(str(error)) from error
        if object_ is None and not optional:
            raise VolumeError(f'{kind.lower()} "{name}" not found')
        return object_


def _mode(given: int | None) -> int:
    return DEFAULT_MODE if given is None else given
