"""CRD conversion webhooks: a store whose items are in the version that a request wants.

Objects are stored in the definition's storage version, or in one that was it before. A request for a version of a
definition with a conversion webhook is handled over a ConvertingStore: what it reads is converted to its version, what
it writes to the storage version. All objects of a list, or of a batch of changes, are converted by one call.
"""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from podwire.apiserver.engine import Engine
from podwire.apiserver.ports import Store
from podwire.apiserver.webhook_calls import CallFailed, WebhookCalls
from podwire.kinds import stored
from podwire.kinds.policies.webhook import ClientConfig, client_config_of
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.storage import Change, Condition, Item, Page, Watch

_log = logging.getLogger("podwire.apiserver.conversion")

SECONDS = 30.0
"""Time-out of one call."""
_FREE = ("labels", "annotations")
"""Metadata that a conversion may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter:
    """Converts the objects of one definition."""

    calls: WebhookCalls
    client: ClientConfig
    review_version: str
    group: str
    kind: str
    prefix: str
    storage: str
    """The apiVersion in which objects are stored."""

    async def converted(self, objects: Sequence[Object], api_version: str) -> list[Object]:
        """Returns the objects in another version; those that are in it already are not sent. Raises ApiError."""
        others = [obj for obj in objects if obj["apiVersion"] != api_version]
        if not others:
            return list(objects)
        results = iter(await self._called(others, api_version))
        return [obj if obj["apiVersion"] == api_version else next(results) for obj in objects]

    async def _called(self, objects: list[Object], api_version: str) -> list[Object]:
        about, uid = f"{objects[0]['apiVersion']}, Kind={self.kind}", str(uuid.uuid4())
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{self.review_version}",
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects},
        }
        try:
            reply = await self.calls.post(self.client, stored.encode(review), SECONDS)
            converted = _objects(reply, uid, strict=self.review_version == "v1")
        except (CallFailed, _BadConversion) as error:
            raise _failed(f"conversion webhook for {about} failed: {error}") from error
        if len(converted) != len(objects):
            count = f"{len(converted)} objects, expected {len(objects)}"
            raise _failed(f"conversion webhook for {about} returned {count}")
        for index, (before, after) in enumerate(zip(objects, converted, strict=True)):
            if wrong := _wrong(before, after, api_version):
                raise _failed(
                    f"conversion webhook for {about} returned invalid converted object at index {index}: {wrong}"
                )
            metadata = {word: value for word, value in before["metadata"].items() if word not in _FREE}
            free = {word: after["metadata"][word] for word in _FREE if after["metadata"].get(word)}
            after["metadata"] = {**metadata, **free}
        return converted


class _BadConversion(Exception):
    pass


def _objects(reply: Any, uid: str, *, strict: bool) -> list[Any]:
    """Returns the objects of a ConversionReview; raises _BadConversion."""
    review = reply if isinstance(reply, dict) else {}
    kind = f"{review.get('apiVersion') or '/'}, Kind={review.get('kind') or ''}"
    expected = "apiextensions.k8s.io/v1, Kind=ConversionReview"
    if strict and kind != expected:
        raise _BadConversion(f"expected webhook response of {expected}, got {kind}")
    response = review.get("response")
    if not isinstance(response, dict):
        raise _BadConversion("no response provided")
    if strict and response.get("uid") != uid:
        raise _BadConversion(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    result = response.get("result")
    result = result if isinstance(result, dict) else {}
    if result.get("status") != "Success":
        why = f"response.result.status was '{result.get('status') or ''}', not 'Success'"
        raise _BadConversion(str(result.get("message") or why))
    objects = response.get("convertedObjects")
    return objects if isinstance(objects, list) else []


def _wrong(before: Object, after: Any, api_version: str) -> str:
    if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
        return "missing metadata in converted object"
    if after.get("apiVersion") != api_version:
        return f"invalid groupVersion (expected {api_version}, received {after.get('apiVersion') or ''})"
    if after.get("kind") != before["kind"]:
        return f"invalid kind (expected {before['kind']}, received {after.get('kind') or ''})"
    for word, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        old, new = before["metadata"].get(word) or "", after["metadata"].get(word) or ""
        if old != new:
            return f"must have the same {shown}: {old} != {new}"
    return ""


def _failed(message: str) -> ApiError:
    return ApiError(Reason.UNKNOWN, message, code=500)


class ConvertingStore:
    """Implements Store: items of one definition are in one version, all others are left alone."""

    def __init__(self, store: Store, converter: Converter, api_version: str) -> None:
        self._store = store
        self._converter = converter
        self._api_version = api_version

    @property
    def revision(self) -> int:
        return self._store.revision

    async def get(self, key: str) -> Item | None:
        item = await self._store.get(key)
        return None if item is None else (await self.read([item]))[0]

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        page = await self._store.list(prefix, at=at, after=after, limit=limit)
        return replace(page, items=tuple(await self.read(page.items)))

    async def create(self, key: str, value: bytes) -> Item:
        item = await self._store.create(key, await self._written(key, value))
        return msgspec.structs.replace(item, value=value)

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        item = await self._store.update(key, await self._written(key, value), expected=expected)
        return msgspec.structs.replace(item, value=value)

    async def delete(self, key: str, *, expected: int) -> int:
        return await self._store.delete(key, expected=expected)

    async def select(self, prefix: str, conditions: Sequence[Condition], *, scope: str) -> Page | None:
        if prefix == self._converter.prefix:
            return None  # the store's indexes read what is stored
        return await self._store.select(prefix, conditions, scope=scope)

    def watch(self, prefix: str, *, after: int, trigger: Condition | None = None) -> Watch:
        if not prefix.startswith(self._converter.prefix):
            return self._store.watch(prefix, after=after, trigger=trigger)
        return _ConvertingWatch(self, self._store.watch(prefix, after=after))

    async def read(self, items: Sequence[Item]) -> Sequence[Item]:
        """Returns stored items in the version of this store."""
        ours = [item for item in items if item.key.startswith(self._converter.prefix)]
        objects = [stored.unpack(msgspec.structs.replace(item, revision=0)) for item in ours]
        converted = iter(await self._converter.converted(objects, self._api_version))
        return [
            msgspec.structs.replace(item, value=stored.pack(next(converted)))
            if item.key.startswith(self._converter.prefix)
            else item
            for item in items
        ]

    async def _written(self, key: str, value: bytes) -> bytes:
        if not key.startswith(self._converter.prefix):
            return value
        [obj] = await self._converter.converted([msgspec.json.decode(value)], self._converter.storage)
        return stored.pack(obj)


class _ConvertingWatch:
    """Implements Watch: the changes of each batch are converted together."""

    def __init__(self, store: ConvertingStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    @property
    def revision(self) -> int:
        return self._watch.revision

    async def next(self) -> list[Change]:
        changes = await self._watch.next()
        items = [item for change in changes for item in (change.item, change.previous) if item is not None]
        converted = iter(await self._store.read(items))
        return [
            Change(
                change.revision,
                change.key,
                None if change.item is None else next(converted),
                None if change.previous is None else next(converted),
            )
            for change in changes
        ]

    def drain(self) -> list[Change]:
        return []  # converting takes a call, for which only `next` can wait

    def close(self) -> None:
        self._watch.close()


def converter_of(definition: Object, resource: Resource, storage: str, calls: WebhookCalls) -> Converter | None:
    """Returns the converter of a definition; None if its versions differ in their names only."""
    conversion = definition["spec"].get("conversion") or {}
    webhook = conversion.get("webhook") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    known = [version for version in webhook.get("conversionReviewVersions") or () if version in ("v1", "v1beta1")]
    return Converter(
        calls=calls,
        client=client_config_of(webhook.get("clientConfig") or {}),
        review_version=known[0] if known else "v1",
        group=resource.group,
        kind=resource.kind.kind,
        prefix=resource.prefix,
        storage=f"{resource.group}/{storage}",
    )


def converting(engine: Engine, converter: Converter, api_version: str) -> Engine:
    """Returns an engine for requests of one version."""
    store = ConvertingStore(engine.store, converter, api_version)
    return replace(
        engine,
        store=store,
        creator=replace(engine.creator, store=store),
        updater=replace(engine.updater, store=store),
        deleter=replace(engine.deleter, store=store),
    )
