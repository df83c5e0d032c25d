"""Variables of admission policy expressions: the object as it will be and as it was, the request that
wants it so, its namespace, the policy's parameters, and the authorizer.

Objects are whatever they are (`dyn`); the request and the namespace have fields that are known.
"""

from podwire.protocols.cel.types import (
    AUTHORIZER,
    BOOL,
    DYN,
    INT,
    RESOURCE_CHECK,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    struct,
)

_KIND = struct([("group", STRING), ("version", STRING), ("kind", STRING)])
_RESOURCE = struct([("group", STRING), ("version", STRING), ("resource", STRING)])
_USER = struct(
    [
        ("username", STRING),
        ("uid", STRING),
        ("groups", list_of(STRING)),
        ("extra", map_of(STRING, list_of(STRING))),
    ]
)
REQUEST = struct(
    [
        ("kind", _KIND),
        ("resource", _RESOURCE),
        ("subResource", STRING),
        ("requestKind", _KIND),
        ("requestResource", _RESOURCE),
        ("requestSubResource", STRING),
        ("name", STRING),
        ("namespace", STRING),
        ("operation", STRING),
        ("userInfo", _USER),
        ("dryRun", BOOL),
        ("options", DYN),
    ]
)

_METADATA = struct(
    [
        ("name", STRING),
        ("generateName", STRING),
        ("namespace", STRING),
        ("labels", map_of(STRING, STRING)),
        ("annotations", map_of(STRING, STRING)),
        ("UID", STRING),
        ("creationTimestamp", TIMESTAMP),
        ("deletionGracePeriodSeconds", INT),
        ("deletionTimestamp", TIMESTAMP),
        ("generation", INT),
        ("resourceVersion", STRING),
        ("finalizers", list_of(STRING)),
    ]
)
_CONDITION = struct(
    [
        ("status", STRING),
        ("type", STRING),
        ("lastTransitionTime", TIMESTAMP),
        ("message", STRING),
        ("reason", STRING),
    ]
)
NAMESPACE = struct(
    [
        ("metadata", _METADATA),
        ("spec", struct([("finalizers", list_of(STRING))])),
        ("status", struct([("conditions", list_of(_CONDITION)), ("phase", STRING)])),
    ]
)

VARIABLES = {"object": DYN, "oldObject": DYN, "request": REQUEST, "namespaceObject": NAMESPACE}
PARAMS = {"params": DYN}
REQUEST_RESOURCE = "authorizer.requestResource"
AUTHORIZATION = {"authorizer": AUTHORIZER, REQUEST_RESOURCE: RESOURCE_CHECK}


def composed(variables: dict[str, Type]) -> dict[str, Type]:
    """The variable through which the policy's own variables are read."""
    return {"variables": struct(variables.items())}
