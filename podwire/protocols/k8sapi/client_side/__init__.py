"""The API client: verbs on plain objects, watches that resume by themselves. Its HTTP transport is injected."""

from podwire.protocols.k8sapi.client_side.client import Client
from podwire.protocols.k8sapi.client_side.http import (
    ClientError,
    Http,
    Incoming,
    Interrupted,
    NoCredentials,
    Reply,
    TooSlow,
    Unreachable,
)
from podwire.protocols.k8sapi.client_side.informer import Informer
from podwire.protocols.k8sapi.client_side.options import EVERYWHERE, Listing, PatchType, Propagation, Scope

__all__ = [
    "EVERYWHERE",
    "Client",
    "ClientError",
    "Http",
    "Incoming",
    "Informer",
    "Interrupted",
    "Listing",
    "NoCredentials",
    "PatchType",
    "Propagation",
    "Reply",
    "Scope",
    "TooSlow",
    "Unreachable",
]
