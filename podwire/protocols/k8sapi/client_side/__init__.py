"""The client's chair: verbs on plain objects, watches that resume by themselves. It is handed its HTTP."""

from podwire.protocols.k8sapi.client_side.client import Client, Listing
from podwire.protocols.k8sapi.client_side.http import (
    ClientError,
    Http,
    Incoming,
    Interrupted,
    Reply,
    TooSlow,
    Unreachable,
)
from podwire.protocols.k8sapi.client_side.informer import Informer

__all__ = [
    "Client",
    "ClientError",
    "Http",
    "Incoming",
    "Informer",
    "Interrupted",
    "Listing",
    "Reply",
    "TooSlow",
    "Unreachable",
]
