"""Validation of a pod's network: DNS, host aliases, host names, ports on the host's own network."""

from collections.abc import Sequence

from podwire.kinds.field_checks import Choice, Errors, Object, ip, named, search_domain
from podwire.objects import names
from podwire.protocols.k8sapi.status import forbidden, invalid, required, too_long

_DNS_POLICIES = Choice(("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"))
_MOST_NAMESERVERS = 3
_MOST_SEARCHES = 32
_LONGEST_SEARCH_LIST = 2048
_LONGEST_HOSTNAME = 64


def dns(spec: Object, path: str, errors: Errors) -> None:
    """`dnsPolicy` and `dnsConfig`, which the policy None needs."""
    policy, config = spec.get("dnsPolicy", ""), spec.get("dnsConfig")
    _DNS_POLICIES.require(policy, f"{path}.dnsPolicy", errors)
    path = f"{path}.dnsConfig"
    if policy == "None" and config is None:
        errors.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
    elif policy == "None" and config is not None and not config.get("nameservers"):
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        errors.append(required(f"{path}.nameservers", detail))
    elif config is not None:
        _nameservers(config.get("nameservers") or [], f"{path}.nameservers", errors)
        _searches(config.get("searches") or [], f"{path}.searches", errors)
        for index, option in enumerate(config.get("options") or ()):
            if not option.get("name"):
                errors.append(required(f"{path}.options[{index}]", "must not be empty"))


def _nameservers(servers: list[str], path: str, errors: Errors) -> None:
    if len(servers) > _MOST_NAMESERVERS:
        errors.append(invalid(path, servers, f"must not have more than {_MOST_NAMESERVERS} nameservers"))
    for index, server in enumerate(servers):
        ip(server, f"{path}[{index}]", errors)


def _searches(searches: list[str], path: str, errors: Errors) -> None:
    if len(searches) > _MOST_SEARCHES:
        errors.append(invalid(path, searches, f"must not have more than {_MOST_SEARCHES} search paths"))
    if len(" ".join(searches)) > _LONGEST_SEARCH_LIST:
        detail = f"must not have more than {_LONGEST_SEARCH_LIST} characters (including spaces) in the search list"
        errors.append(invalid(path, searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            named(search_domain, search.removesuffix("."), f"{path}[{index}]", errors)


def host_aliases(aliases: Sequence[Object], path: str, errors: Errors) -> None:
    for index, alias in enumerate(aliases):
        ip(alias.get("ip", ""), f"{path}[{index}].ip", errors)
        for position, hostname in enumerate(alias.get("hostnames") or ()):
            named(names.dns_subdomain, hostname, f"{path}[{index}].hostnames[{position}]", errors)


def host_ports(containers: Sequence[Object], is_pod: bool, path: str, errors: Errors) -> None:
    """On the host's network a container's port is the host's; a template may leave the host port to defaulting."""
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            host_port = port.get("hostPort", 0)
            if (is_pod or host_port) and host_port != port.get("containerPort", 0):
                place = f"{path}[{index}].ports[{position}].hostPort"
                errors.append(invalid(place, host_port, "must match `containerPort` when `hostNetwork` is true"))


def hostname_override(spec: Object, path: str, errors: Errors) -> None:
    hostname, path = spec["hostnameOverride"], f"{path}.hostnameOverride"
    if spec.get("setHostnameAsFQDN"):
        errors.append(forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
    if spec.get("hostNetwork"):
        errors.append(forbidden(path, "may not be specified when hostNetwork is true"))
    if len(hostname) > _LONGEST_HOSTNAME:
        errors.append(too_long(path, _LONGEST_HOSTNAME))
    named(names.dns_subdomain, hostname, path, errors)
