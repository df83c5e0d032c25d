"""create: from a decoded body to a stored object."""

import copy
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from podwire.apiserver.admission import Admission, Operation
from podwire.apiserver.identity.authentication import User
from podwire.apiserver.ports import Store
from podwire.apiserver.request import context, offload
from podwire.apiserver.write.field_managers import SERVER, FieldManager, Tracker
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
"""Bytes of one stored object after defaulting; no store accepts more, and a dry run must fail too."""

MANY_PARTS = 50_000
"""Members of an object that is not worth being validated when it is too large."""

NAME_ATTEMPTS = 8
_RANDOM = random.Random()


def random_name(base: str) -> str:
    """Returns the base with a random suffix."""
    return generate_name(base, _RANDOM)


class Uids:
    """Random UUIDs (version 4). The randomness is read for many at once: reading and formatting each of them by
    `uuid.uuid4` takes as long as all checks of a small object.

    An object of one server, not of the module: a forked process would go on with its parent's.
    """

    BATCH = 64

    def __init__(self) -> None:
        self._random: list[str] = []

    def next(self) -> str:
        if not self._random:
            digits = os.urandom(16 * self.BATCH).hex()
            self._random = [digits[start : start + 32] for start in range(0, len(digits), 32)]
        hex_ = self._random.pop()
        variant = "89ab"[int(hex_[16], 16) & 3]
        return f"{hex_[:8]}-{hex_[8:12]}-4{hex_[13:16]}-{variant}{hex_[17:20]}-{hex_[20:]}"


@dataclass(frozen=True, slots=True)
class Creator:
    """Creates objects."""

    store: Store
    admission: Admission
    clock: Clock
    tracker: Tracker
    generate_name: Callable[[str], str]
    uids: Uids = field(default_factory=Uids)

    async def create(
        self,
        resource: Resource,
        namespace: str,
        obj: Object,
        user: User,
        *,
        dry_run: bool = False,
        name: str = "",
        field_manager: FieldManager | None = SERVER,
        is_valid: bool = False,
    ) -> Item:
        """Stores a new object. `field_manager` None: the object's managedFields are already set (server-side apply).
        `is_valid` is for the server's own objects, which a test validates.

        1. Check the body against the URL.  2. Set name, uid and time; default; track the field manager.
        3. Mutating admission.  4. Default again and validate.  5. Validating admission.
        6. Reserve what admission chose (service addresses, quota).  7. Write to the store.

        A generated name that is taken starts again at 2 with another one. A write that certainly did not happen undoes
        the reservations; one whose outcome is unknown does not, because the object may exist (see
        admission/allocation_reconciler.py).
        """
        _check_request(resource, namespace, obj, name)
        generated = not obj["metadata"].get("name")
        attempts = NAME_ATTEMPTS if generated else 1
        while True:
            attempts -= 1
            operation = Operation(
                verb="CREATE",
                resource=resource,
                namespace=namespace,
                obj=await offload.run(self._completed, resource, namespace, obj, field_manager, generated=generated),
                old=None,
                user=user,
                dry_run=dry_run,
            )
            await self.admission.admit(operation)
            try:
                key, value = await self._prepare(operation, is_valid=is_valid)
                return Item(key, value, 0, 0) if dry_run else await self.store.create(key, value)
            except (ApiError, StoreFull):
                await operation.undo()
                raise
            except KeyExists as error:
                await operation.undo()
                if not attempts:
                    raise _already_exists(resource, error.key.rpartition("/")[2], generated=generated) from error

    def _completed(
        self, resource: Resource, namespace: str, obj: Object, field_manager: FieldManager | None, *, generated: bool
    ) -> Object:
        """Returns the object with what the server sets; another one, if the next attempt needs it as it was sent."""
        new = copy.deepcopy(obj) if generated else obj
        # Sets the metadata that only the server may set.
        metadata = new["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self.generate_name(metadata["generateName"])
        if resource.kind.namespaced:
            metadata["namespace"] = namespace
        metadata["uid"] = self.uids.next()
        metadata["creationTimestamp"] = rfc3339(self.clock.wall())
        if resource.strategy.counts_generation:
            metadata["generation"] = 1
        resource.default(new)
        refuse_too_large(resource, new)
        if field_manager is not None:
            self.tracker.created(resource, new, field_manager)
        return new

    async def _prepare(self, operation: Operation, *, is_valid: bool) -> tuple[str, bytes]:
        """Validates an admitted object and reserves what it needs; returns its key and the bytes to store."""
        resource, obj = operation.resource, operation.obj
        for text in await offload.run(_validate, resource, obj, is_valid=is_valid):
            context.warn(text)
        await self.admission.validate(operation)
        key = resource.key(operation.namespace, obj["metadata"]["name"])
        value = await offload.run(pack_checked, resource, obj)
        if (operation.dry_run or operation.reservations) and await self.store.get(key):
            raise KeyExists(key)
        if operation.reservations and not operation.dry_run:
            await operation.reserve()
            value = pack_checked(resource, obj)
        return key, value


def _validate(resource: Resource, obj: Object, *, is_valid: bool) -> list[str]:
    """Defaults an admitted object again and validates it, unless it is known to be valid; returns the warnings."""
    resource.default(obj)
    resource.strategy.prepare_for_create(resource.kind, obj)
    if is_valid:
        return []
    if errors := resource.validate(obj):
        raise invalid_object(resource.kind.kind, obj["metadata"].get("name", ""), errors, group=resource.group)
    return resource.strategy.warnings(obj, None)


def _check_request(resource: Resource, namespace: str, obj: Object, name: str) -> None:
    """Checks the body against the URL and drops fields that clients may not set."""
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
    """Checks that the body's namespace is the URL's; it is removed from cluster-scoped kinds."""
    if not resource.kind.namespaced:
        metadata.pop("namespace", None)
    elif metadata.get("namespace", namespace) not in ("", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _already_exists(resource: Resource, name: str, *, generated: bool) -> ApiError:
    error = already_exists(resource.name, name, group=resource.group)
    if not generated:
        return error
    message = f"{error.message}, the server was not able to generate a unique name for the object"
    return ApiError(Reason.ALREADY_EXISTS, message, details={**error.details, "retryAfterSeconds": 1})


def mismatch(what: str, given: str, wanted: str) -> str:
    return f"the {what} of the object ({given}) does not match the {what} on the URL ({wanted})"


def refuse_too_large(resource: Resource, obj: Object) -> None:
    """Raises 413 for an object that is too large and has many parts, before anybody owns its fields.

    Field managers, admission and validation only add to it and are the expensive steps: 150 KB of empty containers are
    5 MB with their defaults, and would take ten seconds to be refused. With few parts they are quick, and may say
    better what is wrong: that an annotation is too long. A small request cannot become that large.
    """
    if offload.is_large():
        value = resource.pack(obj)
        if len(value) > OBJECT_LIMIT and value.count(b'":') - value.count(b'\\":') > MANY_PARTS:
            raise _too_large(value)


def pack_checked(resource: Resource, obj: Object) -> bytes:
    """Returns the bytes to store; 413 when they are too many."""
    value = resource.pack(obj)
    if len(value) > OBJECT_LIMIT:
        raise _too_large(value)
    return value


def _too_large(value: bytes) -> ApiError:
    return ApiError(
        Reason.TOO_LARGE,
        f"Request entity too large: the object is {len(value)} bytes after defaulting, the limit is {OBJECT_LIMIT}",
    )
