"""Settings of the ConfigMap kube-system/kube-dns: the keys that kube-dns had, and `hosts`. Pure.

stubDomains          JSON: {"example.internal": ["10.0.0.53", "10.0.0.54:5353"]}
upstreamNameservers  JSON: ["192.0.2.1", "[2001:db8::1]:53"]; without it the node's resolv.conf
hosts                lines of /etc/hosts: ADDRESS NAME…
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

import msgspec

from podwire.dns.limits import Limits
from podwire.protocols.dns.queries import Name, name_of

STUB_DOMAINS, UPSTREAMS, HOSTS = "stubDomains", "upstreamNameservers", "hosts"
DNS_PORT = 53


class BadSetting(ValueError):
    """A key of the ConfigMap cannot be used; says which and why."""


@dataclass(frozen=True, slots=True, order=True)
class Upstream:
    """Another DNS server."""

    host: str
    port: int = DNS_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Config:
    stub_domains: Mapping[Name, tuple[Upstream, ...]] = field(default_factory=dict)
    upstreams: tuple[Upstream, ...] = ()
    """Empty: those of resolv.conf."""
    hosts: Mapping[Name, tuple[str, ...]] = field(default_factory=dict)
    host_names: Mapping[str, Name] = field(default_factory=dict)
    """The first name of each address."""


def read_config(data: Mapping[str, str], limits: Limits) -> tuple[Config, list[str]]:
    """Returns the settings that are valid, and what is wrong with the others."""
    errors = [
        f"{key}: unknown key; known are {STUB_DOMAINS}, {UPSTREAMS} and {HOSTS}" for key in data if key not in _KEYS
    ]
    stub_domains: Mapping[Name, tuple[Upstream, ...]] = {}
    upstreams: tuple[Upstream, ...] = ()
    hosts: tuple[dict[Name, tuple[str, ...]], dict[str, Name]] = ({}, {})
    try:
        stub_domains = _stub_domains(data.get(STUB_DOMAINS) or "{}", limits)
    except BadSetting as error:
        errors.append(f"{STUB_DOMAINS}: {error}")
    try:
        upstreams = _servers(_json(data.get(UPSTREAMS) or "[]", list[str]), limits)
    except BadSetting as error:
        errors.append(f"{UPSTREAMS}: {error}")
    try:
        hosts = _hosts(data.get(HOSTS) or "", limits)
    except BadSetting as error:
        errors.append(f"{HOSTS}: {error}")
    return Config(stub_domains, upstreams, *hosts), errors


_KEYS = frozenset({STUB_DOMAINS, UPSTREAMS, HOSTS})


def upstream_of(text: str) -> Upstream:
    """Reads `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`. Raises BadSetting."""
    host, port = text.strip(), str(DNS_PORT)
    if host.startswith("["):
        host, _, port = host[1:].partition("]")
        port = port.removeprefix(":") or str(DNS_PORT)
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError as error:
        raise BadSetting(f"{text!r} is not the address of a DNS server") from error
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise BadSetting(f"{text!r} does not end with a port")
    return Upstream(host if "%" in host else str(address), int(port))


def resolv_conf_servers(text: str) -> tuple[Upstream, ...]:
    """Returns the servers of a resolv.conf; lines that cannot be used are skipped, as resolvers do."""
    servers = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            try:
                servers.append(upstream_of(f"[{words[1]}]"))
            except BadSetting:
                continue
    return tuple(dict.fromkeys(servers))


def _json(text: str, type_: type) -> object:
    try:
        return msgspec.json.decode(text, type=type_)
    except msgspec.MsgspecError as error:
        raise BadSetting(str(error)) from error


def _servers(texts: object, limits: Limits) -> tuple[Upstream, ...]:
    given = list(texts) if isinstance(texts, Iterable) else []
    if len(given) > limits.servers:
        raise BadSetting(f"more than {limits.servers} servers")
    return tuple(dict.fromkeys(upstream_of(text) for text in given))


def _stub_domains(text: str, limits: Limits) -> dict[Name, tuple[Upstream, ...]]:
    rows = _json(text, dict[str, list[str]])
    if not isinstance(rows, dict) or len(rows) > limits.stub_domains:
        raise BadSetting(f"more than {limits.stub_domains} domains")
    domains = {}
    for domain, servers in rows.items():
        try:
            name = name_of(domain)
        except ValueError as error:
            raise BadSetting(f"{domain!r} is not a domain name") from error
        if not servers:
            raise BadSetting(f"{domain!r} has no server")
        domains[name] = _servers(servers, limits)
    return domains


def _hosts(text: str, limits: Limits) -> tuple[dict[Name, tuple[str, ...]], dict[str, Name]]:
    names: dict[Name, dict[str, None]] = {}
    first: dict[str, Name] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            address = str(ip_address(words[0]))
            own = [name_of(word) for word in words[1:]]
        except ValueError as error:
            raise BadSetting(f"line {number}: {error}") from error
        if not own or not all(own):
            raise BadSetting(f"line {number}: no name")
        first.setdefault(address, own[0])
        for name in own:
            names.setdefault(name, {})[address] = None
        if len(names) > limits.hosts:
            raise BadSetting(f"more than {limits.hosts} names")
    return {name: tuple(addresses) for name, addresses in names.items()}, first
