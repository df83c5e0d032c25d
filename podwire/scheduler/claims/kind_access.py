"""Whether the API server serves a kind, and whether the scheduler may list it.

kube-apiserver authorizes before it routes: a kind that it does not serve, and that roles therefore do not name, is
answered with 403 instead of 404 (DeviceTaintRules, for system:kube-scheduler). Discovery, which every user may read,
tells the two cases apart.
"""

import enum
import json

from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.paths import root
from podwire.protocols.k8sapi.status import ApiError

_FORBIDDEN, _NOT_FOUND = 403, 404


class Access(enum.Enum):
    SERVED = enum.auto()
    """Or not known: an informer retries."""
    NOT_SERVED = enum.auto()
    FORBIDDEN = enum.auto()


async def kind_access(api: Client, kind: Kind) -> tuple[Access, str]:
    """Returns the access to a kind, and the words of a refusal."""
    try:
        await api.page(kind, limit=1)
    except ApiError as error:
        if error.code == _NOT_FOUND or (error.code == _FORBIDDEN and not await _is_discovered(api, kind)):
            return Access.NOT_SERVED, error.message
        return (Access.FORBIDDEN if error.code == _FORBIDDEN else Access.SERVED), error.message
    except ClientError:
        return Access.SERVED, ""
    return Access.SERVED, ""


async def _is_discovered(api: Client, kind: Kind) -> bool:
    """Whether discovery lists the kind; True when it cannot be read."""
    try:
        document = json.loads(await api.raw(root(kind.group, kind.version)))
    except ApiError as error:
        return error.code != _NOT_FOUND
    except (ClientError, ValueError):
        return True
    return any(resource.get("name") == kind.resource for resource in document.get("resources", ()))
