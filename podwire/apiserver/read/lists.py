"""get and list: revisions, pages and selectors. Answers are spliced from stored bytes, not decoded."""

import asyncio
import base64
import binascii
from dataclasses import dataclass, replace

import msgspec

from podwire.apiserver.limits import Limits
from podwire.apiserver.ports import Store
from podwire.apiserver.read import selection as select
from podwire.apiserver.read.selection import Selection
from podwire.apiserver.request.call import Call, integer_option, revision_option
from podwire.apiserver.request.response import ListMeta
from podwire.protocols.k8sapi.codec import MAX_INT
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import (
    ApiError,
    FieldError,
    Problem,
    Reason,
    bad_request,
    forbidden,
    invalid_object,
    not_found,
)
from podwire.protocols.storage import Gone, Item, NotYet, Page
from podwire.tasks.slices import in_slices


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one answer and the list's metadata."""

    items: list[Item]
    meta: ListMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """Start and revision of a page; revision None means the current one."""

    at: int | None = None
    after: str | None = None
    limit: int = 0


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


INCONSISTENT = -1
"""The revision in a continue token that goes on from a key at the current revision."""


async def get(store: Store, call: Call, limits: Limits) -> Item:
    """Returns one object, no older than the requested resourceVersion."""
    await wait_for_revision(store, revision_option(call.request) or 0, limits)
    item = await store.get(call.resource.key(call.namespace, call.name))
    if item is None:
        raise not_found(call.resource.name, call.name, group=call.resource.group)
    return item


async def list_(store: Store, call: Call, limits: Limits) -> Listing:
    """Returns a page of the selected objects."""
    selection = select.of(call.request, call.resource)
    listing = await _list(store, call, limits, selection)
    if selection.shard is None:
        return listing
    return replace(listing, meta=replace(listing.meta, shard=str(selection.shard)))


async def _list(store: Store, call: Call, limits: Limits, selection: Selection) -> Listing:
    request, resource = call.request, call.resource
    paging = _paging(request, resource.scope(call.namespace))
    if paging.at is None:
        await wait_for_revision(store, revision_option(request) or 0, limits)
    if paging.at is None and paging.after is None and (one := key_of_name(call, selection)):
        return await _list_one(store, one, selection)
    scope = resource.scope(call.namespace)
    try:
        if selection.everything:
            return await _list_all(store, scope, paging)
        if paging.at is None and selection.fields and (page := await _select(store, call, selection)) is not None:
            return _cut(page, scope, paging)
        return await _list_selected(store, scope, selection, paging, limits.scan_keys)
    except Gone as error:
        raise _expired(paging, scope) from error
    except NotYet as error:
        raise too_large(error.revision, error.current) from error


async def wait_for_revision(store: Store, revision: int, limits: Limits) -> None:
    """Waits until the store has reached `revision`; 504 when it does not in time."""
    if revision <= store.revision:
        return
    watch = store.watch("/", after=store.revision)
    try:
        async with asyncio.timeout(limits.revision_wait):
            while store.revision < revision:
                await watch.next()
    except TimeoutError:
        raise too_large(revision, store.revision) from None
    finally:
        watch.close()


def too_large(revision: int, current: int) -> ApiError:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(
        Reason.TIMEOUT,
        f"Timeout: Too large resource version: {revision}, current: {current}",
        details={"causes": causes, "retryAfterSeconds": 1},
        headers=(("Retry-After", "1"),),
    )


def key_of_name(call: Call, selection: Selection) -> str:
    """Returns the only storage key that a selection by name can match; '' when it may be in any namespace."""
    everywhere = call.resource.kind.namespaced and not call.namespace
    if everywhere or not selection.name or "/" in selection.name:
        return ""
    return call.resource.key(call.namespace, selection.name)


async def present(store: Store, call: Call, selection: Selection) -> tuple[list[Item], int]:
    """Returns the selected objects as they are now, and the revision of that."""
    if one := key_of_name(call, selection):
        listing = await _list_one(store, one, selection)
        return listing.items, listing.meta.revision
    page = await _select(store, call, selection) if selection.fields else None
    if page is None:
        page = await store.list(call.resource.scope(call.namespace))
        if selection.everything:
            return list(page.items), page.revision
        return [item async for item in in_slices(page.items) if selection.picks(item)], page.revision
    return list(page.items), page.revision


async def _list_one(store: Store, key: str, selection: Selection) -> Listing:
    """Lists by metadata.name as a get: no scan, regardless of the namespace's size."""
    revision = store.revision
    item = await store.get(key)
    items = [item] if item is not None and selection.picks(item) else []
    return Listing(items, ListMeta(max(revision, *(item.revision for item in items), 0)))


async def _list_all(store: Store, scope: str, paging: Paging) -> Listing:
    page = await store.list(scope, at=paging.at, after=paging.after, limit=paging.limit)
    return Listing(list(page.items), _meta(page, scope, page.items[-1] if page.more else None))


async def _select(store: Store, call: Call, selection: Selection) -> Page | None:
    """Returns the selected objects by the store's indexes; None when it has none."""
    scope = call.resource.scope(call.namespace)
    page = await store.select(call.resource.prefix, selection.fields, scope=scope)
    if page is None or (selection.labels is None and selection.shard is None):
        return page
    items = [item async for item in in_slices(page.items) if selection.picks_beside_fields(item)]
    return replace(page, items=tuple(items))


def _cut(page: Page, scope: str, paging: Paging) -> Listing:
    """Returns the part of a selection that a client asked for."""
    items = [item for item in page.items if paging.after is None or item.key > paging.after]
    if not paging.limit or len(items) <= paging.limit:
        return Listing(items, ListMeta(page.revision))
    items = items[: paging.limit]
    return Listing(items, _meta(page, scope, items[-1], count=False))


async def _list_selected(store: Store, scope: str, selection: Selection, paging: Paging, scan_keys: int) -> Listing:
    """Scans page by page, all at the first page's revision, until the limit is reached."""
    items: list[Item] = []
    after, at = paging.after, paging.at
    while True:
        page = await store.list(scope, at=at, after=after, limit=scan_keys if paging.limit else 0)
        at = page.revision
        async for item in in_slices(page.items):
            if paging.limit and len(items) == paging.limit:
                return Listing(items, _meta(page, scope, items[-1], count=False))
            if selection.picks(item):
                items.append(item)
        if not page.more:
            return Listing(items, ListMeta(page.revision))
        after = page.items[-1].key


def _meta(page: Page, scope: str, last: Item | None, *, count: bool = True) -> ListMeta:
    if last is None:
        return ListMeta(page.revision)
    token = _Token("meta.k8s.io/v1", page.revision, f"{last.key.removeprefix(scope)}\0")
    return ListMeta(page.revision, _encode_token(token), page.remaining if count else 0)


def _paging(request: Request, scope: str) -> Paging:
    """Combines limit, continue, resourceVersion and resourceVersionMatch."""
    limit = integer_option(request, "limit") or 0
    if limit < 0:
        raise bad_request("limit must not be negative")
    integer_option(request, "timeoutSeconds")
    revision, match = revision_option(request), request.option("resourceVersionMatch")
    token = request.option("continue")
    _check(request, match, revision, token=bool(token))
    if token:
        if revision:
            raise bad_request("specifying resource version is not allowed when using continue")
        opened = _decode_token(token)
        at = None if opened.rv == INCONSISTENT else opened.rv
        return Paging(at=at, after=scope + opened.start.removesuffix("\0"), limit=limit)
    exactly = match == "Exact" or (
        limit and not match
    )  # a page at a revision was exact before resourceVersionMatch existed
    return Paging(at=(revision or None) if exactly else None, limit=limit)


def _check(request: Request, match: str, revision: int | None, *, token: bool) -> None:
    errors = []
    if match and revision is None:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(forbidden("resourceVersionMatch", why))
    if match and token:
        errors.append(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if match not in ("", "Exact", "NotOlderThan"):
        allowed = 'supported values: "Exact", "NotOlderThan", ""'
        errors.append(FieldError(Problem.NOT_SUPPORTED, "resourceVersionMatch", match, allowed))
    if match == "Exact" and revision == 0:
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        errors.append(forbidden("resourceVersionMatch", why))
    if "sendInitialEvents" in request.query:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if errors:
        raise invalid_object("ListOptions", "", errors, group="meta.k8s.io")


def _encode_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _decode_token(text: str) -> _Token:
    """Decodes a continue token; 400 for one that this server cannot have created."""
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    parts = token.start.removesuffix("\0").split("/")
    if token.v != "meta.k8s.io/v1" or not INCONSISTENT <= token.rv <= MAX_INT or token.rv == 0:
        raise bad_request("continue key is not valid: incorrect encoded start resourceVersion")
    if not token.start or any(part in ("", ".", "..") for part in parts) or len(parts) > 2:
        raise bad_request("continue key is not valid: incorrect encoded start key")
    return token


def _expired(paging: Paging, scope: str) -> ApiError:
    """Returns a 410; a paged list gets a token with which it can go on without consistency."""
    if paging.after is None:
        return ApiError(Reason.EXPIRED, f"The provided resource version is too old: {paging.at}")
    token = _encode_token(_Token("meta.k8s.io/v1", INCONSISTENT, f"{paging.after.removeprefix(scope)}\0"))
    return ApiError(
        Reason.EXPIRED,
        "The provided continue parameter is too old to display a consistent list result. Start a new list without it, "
        "or go on with the token in this answer: what changed in between may then be missing or shown twice.",
        metadata={"continue": token},
    )
