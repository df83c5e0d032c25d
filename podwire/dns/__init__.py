"""Cluster DNS: names of Services, endpoints and pods; other names are forwarded and cached."""

from podwire.dns.limits import Limits
from podwire.dns.server import Server, Settings

__all__ = ["Limits", "Server", "Settings"]
