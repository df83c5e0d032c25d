"""Admits requests: client certificates and tokens, and rights on subresources of the node."""

from podwire.interfaces import Clock
from podwire.kubelet.server.routes import Right
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.access_reviews import AccessReviews, Caller
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import ApiError, Reason


class Reviewer:
    """Admits requests, or raises ApiError."""

    def __init__(self, api: Client, node: str, clock: Clock) -> None:
        self._reviews = AccessReviews(api, clock)
        self._node = node

    async def admit(self, request: Request, right: Right) -> Caller:
        """Returns the caller if it may use one of these subresources of the node."""
        caller = await self._reviews.caller(request)
        request.trust()
        denial = ""
        for subresource in right.subresources:
            attributes = {
                "verb": right.verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": self._node,
            }
            if not (denial := await self._reviews.denial(caller, {"resourceAttributes": attributes})):
                return caller
        requested = f"verb={right.verb}, resource=nodes, subresource(s)=[{' '.join(right.subresources)}]"
        raise ApiError(Reason.FORBIDDEN, f"Forbidden (user={caller.name}, {requested}){denial}")
