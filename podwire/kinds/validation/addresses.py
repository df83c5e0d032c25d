"""Addresses of endpoints and services, which must be reachable from elsewhere."""

import ipaddress

from podwire.kinds.validation.pod_values import Errors
from podwire.objects import names
from podwire.protocols.k8sapi.status import invalid


def endpoint_ip(text: str, path: str, errors: Errors) -> None:
    """An address that is neither unspecified nor of this host or link alone."""
    if problems := names.ip(text):
        errors += [invalid(path, text, each) for each in problems]
        return
    address = ipaddress.ip_address(text)
    if address.is_unspecified:
        errors.append(invalid(path, text, f"may not be unspecified ({text})"))
    elif address.is_loopback:
        errors.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    elif address.is_link_local:
        errors.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    elif any(address in network for network in _LINK_MULTICAST if network.version == address.version):
        errors.append(invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))


_LINK_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))
