"""A client of the Kubernetes API for programs: `async with connect() as api`. Speaks: k8sapi, streaming.

Objects are plain dicts. A refusal of the server is an ApiError with the reason and the code of its Status, no answer
is a ClientError, an unusable kubeconfig a BadKubeconfig.
"""

from podwire.client.api import Api
from podwire.client.connecting import connect
from podwire.client.sessions import Completed, Forwarding, Session, SessionError
from podwire.protocols.k8sapi.client_side import ClientError, Informer, PatchType, Propagation
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Added, Deleted, Synced, Updated
from podwire.protocols.streaming.client_side import Stderr, Stdout

__all__ = [
    "Added",
    "Api",
    "ApiError",
    "BadKubeconfig",
    "ClientError",
    "Completed",
    "Deleted",
    "Forwarding",
    "Informer",
    "PatchType",
    "Propagation",
    "Reason",
    "Session",
    "SessionError",
    "Stderr",
    "Stdout",
    "Synced",
    "Updated",
    "connect",
]
