"""create: from a decoded body to a stored object."""

import copy
import random
import uuid
from dataclasses import dataclass

from podwire.apiserver.admission import Admission, Operation
from podwire.apiserver.identity.authentication import User
from podwire.apiserver.ports import Store
from podwire.apiserver.write.field_managers import SERVER, Author, Tracker
from podwire.interfaces import Clock
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.objects.names import generate_name
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.status import (
    ApiError,
    Reason,
    already_exists,
    bad_request,
    invalid_object,
)
from podwire.protocols.storage import Item, KeyExists, StoreFull

OBJECT_LIMIT = 1_500_000
"""Bytes that may be stored for one object, after defaulting; no store takes more, and a dry run must say so too."""

GENERATED_TRIES = 8
_RANDOM = random.Random()


@dataclass(frozen=True, slots=True)
class Creator:
    """Creates objects."""

    store: Store
    admission: Admission
    clock: Clock
    tracker: Tracker

    async def create(
        self,
        resource: Resource,
        namespace: str,
        obj: Object,
        user: User,
        *,
        dry_run: bool = False,
        name: str = "",
        author: Author | None = SERVER,
    ) -> Item:
        """Store a new object. No `author`: the object says itself who owns what.

        1. Names, namespace, uid, time.  2. Defaults, and who owns them.  3. Admission.  4. Validation.
        5. Policies.  6. What admission must take.  7. The store.
        """
        _claim_place(resource, namespace, obj, name)
        generated = not obj["metadata"].get("name")
        for left in reversed(range(GENERATED_TRIES if generated else 1)):
            try:
                return await self._create(
                    resource, namespace, copy.deepcopy(obj) if generated else obj, user, author, dry_run=dry_run
                )
            except KeyExists as error:
                if not left:
                    raise _taken(resource, error.key.rpartition("/")[2], generated=generated) from error
        raise AssertionError("the loop returns or raises")

    async def _create(
        self, resource: Resource, namespace: str, obj: Object, user: User, author: Author | None, *, dry_run: bool
    ) -> Item:
        self._give_identity(resource, namespace, obj)
        resource.default(obj)
        if author is not None:
            self.tracker.created(resource, obj, author)
        operation = Operation(
            verb="CREATE", resource=resource, namespace=namespace, obj=obj, old=None, user=user, dry_run=dry_run
        )
        await self.admission.admit(operation)
        try:
            return await self._store(operation)
        except (ApiError, KeyExists, StoreFull):
            await self.admission.undo(operation)  # only when it is certain that nothing was written
            raise

    async def _store(self, operation: Operation) -> Item:
        resource, obj = operation.resource, operation.obj
        resource.default(obj)
        resource.strategy.prepare_for_create(resource.kind, obj)
        if errors := resource.validate(obj):
            name = obj["metadata"].get("name", "")
            raise invalid_object(resource.kind.kind, name, errors, group=resource.group)
        await self.admission.judge(operation)
        value, key = packed(resource, obj), resource.key(operation.namespace, obj["metadata"]["name"])
        if (operation.dry_run or operation.reserve) and await self.store.get(key):
            raise KeyExists(key)
        if operation.dry_run:
            return Item(key, value, 0, 0)
        if operation.reserve:
            await operation.reserve()
            value = packed(resource, obj)
        return await self.store.create(key, value)

    def _give_identity(self, resource: Resource, namespace: str, obj: Object) -> None:
        """What only the server may say of a new object."""
        metadata = obj["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = generate_name(metadata["generateName"], _RANDOM)
        if resource.kind.namespaced:
            metadata["namespace"] = namespace
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = rfc3339(self.clock.wall())
        if resource.strategy.counts_generation:
            metadata["generation"] = 1


def _claim_place(resource: Resource, namespace: str, obj: Object, name: str) -> None:
    """Check the body against the URL and drop what a client may not set."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    if name and metadata.setdefault("name", name) != name:
        raise bad_request(mismatch("name", metadata["name"], name))
    check_namespace(resource, namespace, metadata)
    for owned in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                  "selfLink", "resourceVersion"):  # fmt: skip
        metadata.pop(owned, None)
    if resource.has_status and not resource.strategy.status_on_create:
        obj.pop("status", None)


def check_namespace(resource: Resource, namespace: str, metadata: Object) -> None:
    """The body's namespace must be the URL's; a cluster-wide kind has none, whatever the body says."""
    if not resource.kind.namespaced:
        metadata.pop("namespace", None)
    elif metadata.get("namespace", namespace) not in ("", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _taken(resource: Resource, name: str, *, generated: bool) -> ApiError:
    error = already_exists(resource.name, name, group=resource.group)
    if not generated:
        return error
    message = f"{error.message}, the server was not able to generate a unique name for the object"
    return ApiError(Reason.ALREADY_EXISTS, message, details={**error.details, "retryAfterSeconds": 1})


def mismatch(what: str, given: str, wanted: str) -> str:
    return f"the {what} of the object ({given}) does not match the {what} on the URL ({wanted})"


def packed(resource: Resource, obj: Object) -> bytes:
    """The bytes to store; 413 when they are too many."""
    value = resource.pack(obj)
    if len(value) > OBJECT_LIMIT:
        raise ApiError(
            Reason.TOO_LARGE,
            f"Request entity too large: the object is {len(value)} bytes after defaulting, the limit is {OBJECT_LIMIT}",
        )
    return value
