"""Decides what a name of the cluster means, by the Kubernetes DNS specification 1.1.0. Pure.

    SERVICE.NS.svc.ZONE                 A, AAAA: the cluster IPs; headless: all ready endpoints. SRV: all ports
    _PORT._PROTOCOL.SERVICE.NS.svc.ZONE SRV
    HOSTNAME.SERVICE.NS.svc.ZONE        A, AAAA: one endpoint; without a host name it is called 10-1-2-3
    A-B-C-D.NS.pod.ZONE                 A, AAAA: the address in the name
    D.C.B.A.in-addr.arpa, ….ip6.arpa    PTR
    dns-version.ZONE                    TXT

A name that has records of another type, or names below it, is NOERROR without records; any other name is NXDOMAIN.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from podwire.dns.records import Index, Key, Service
from podwire.protocols.dns.answers import Record
from podwire.protocols.dns.codes import AAAA, CNAME, NOERROR, NS, NXDOMAIN, PTR, SOA, SRV, TXT, A
from podwire.protocols.dns.queries import Name, name_of

SCHEMA_VERSION = "1.1.0"
REFRESH, RETRY, EXPIRE = 7200, 1800, 86400
DNS_SERVICE: Key = ("kube-system", "kube-dns")

_REVERSE4, _REVERSE6 = (b"in-addr", b"arpa"), (b"ip6", b"arpa")


@dataclass(frozen=True, slots=True)
class Answer:
    rcode: int = NOERROR
    records: Sequence[Record] = ()
    additional: Sequence[Record] = ()
    target: Name | None = None
    """The name that an alias stands for; its records are to follow."""

    @property
    def negative(self) -> bool:
        return not self.records


NO_DATA, NO_NAME = Answer(), Answer(NXDOMAIN)


@dataclass(slots=True)
class Zone:
    """The names of one cluster."""

    index: Index
    name: Name
    ttl: int
    serial: int = 1
    own_addresses: Sequence[str] = field(default_factory=tuple)
    """Addresses of the name server itself, while there is no Service."""

    def owns(self, name: Name) -> bool:
        return len(name) >= len(self.name) and name[len(name) - len(self.name) :] == self.name

    def soa(self) -> Record:
        names = self._below(b"ns", b"dns"), self._below(b"hostmaster")
        return Record(self.name, SOA, self.ttl, (*names, self.serial, REFRESH, RETRY, EXPIRE, self.ttl))

    def answer(self, name: Name, type_: int) -> Answer:
        """Answers for a name that the zone owns."""
        own = [label.decode("ascii", "replace") for label in name[: len(name) - len(self.name)]]
        match own:
            case []:
                return self._apex(type_)
            case [*rest, "svc"]:
                return self._service(name, rest, type_)
            case [*rest, "pod"]:
                return self._pod(name, rest, type_)
            case ["dns-version"]:
                return Answer(records=(Record(name, TXT, self.ttl, SCHEMA_VERSION),)) if type_ == TXT else NO_DATA
            case ["dns"]:
                return NO_DATA
            case ["ns", "dns"]:
                return self._addresses(name, self._servers(), type_)
        return NO_NAME

    def reverse(self, name: Name) -> Answer | None:
        """Answers PTR for an address of the cluster; None for an address that others may know."""
        address = reverse_address(name)
        if address is None:
            return None
        names = [
            self._below(*((hostname.encode(),) if hostname else ()), service.encode(), namespace.encode(), b"svc")
            for (namespace, service), hostname in self.index.at(address)
        ]
        return Answer(records=tuple(Record(name, PTR, self.ttl, target) for target in names)) if names else None

    def _below(self, *labels: bytes) -> Name:
        return (*labels, *self.name)

    def _servers(self) -> Sequence[str]:
        service = self.index.service(DNS_SERVICE)
        return service.addresses if service is not None else self.own_addresses

    def _apex(self, type_: int) -> Answer:
        if type_ == SOA:
            return Answer(records=(self.soa(),))
        if type_ == NS:
            server = self._below(b"ns", b"dns")
            both = [Record(server, family, self.ttl, ip) for family, ip in _typed(self._servers())]
            return Answer(records=(Record(self.name, NS, self.ttl, server),), additional=both)
        return NO_DATA

    def _service(self, name: Name, rest: list[str], type_: int) -> Answer:
        if not rest:
            return NO_DATA
        namespace = rest[-1]
        if namespace not in self.index.namespaces:
            return NO_NAME
        if len(rest) == 1:
            return NO_DATA
        key = namespace, rest[-2]
        service = self.index.service(key)
        if service is None:
            return NO_NAME
        below = rest[:-2]
        if service.external_name:
            return self._alias(name, service) if not below else NO_NAME
        match below:
            case []:
                return self._whole(name, key, service, type_)
            case [port, protocol] if port[:1] == protocol[:1] == "_":
                return self._ports(name, key, service, type_, (port[1:], protocol[1:]))
            case [protocol] if protocol[:1] == "_":
                rows = service.ports
                return NO_DATA if any(row.name and row.protocol == protocol[1:] for row in rows) else NO_NAME
            case [hostname]:
                found = [row.address for row in self.index.endpoints(key) if row.hostname == hostname]
                return self._addresses(name, found, type_) if found else NO_NAME
        return NO_NAME

    def _alias(self, name: Name, service: Service) -> Answer:
        """An ExternalName; an address instead of a name cannot be an alias."""
        try:
            target = name_of(service.external_name)
        except (ValueError, UnicodeEncodeError):
            return NO_NAME
        if _is_address(service.external_name):
            return NO_NAME
        return Answer(records=(Record(name, CNAME, self.ttl, target),), target=target)

    def _whole(self, name: Name, key: Key, service: Service, type_: int) -> Answer:
        if type_ == SRV:
            return self._ports(name, key, service, type_, None)
        if not service.headless:
            return self._addresses(name, service.addresses, type_)
        addresses = [endpoint.address for endpoint in self.index.endpoints(key)]
        return self._addresses(name, addresses, type_) if addresses else NO_NAME

    def _ports(self, name: Name, key: Key, service: Service, type_: int, port: tuple[str, str] | None) -> Answer:
        """SRV records of one named port, or of all ports."""
        namespace, service_name = key[0].encode(), key[1].encode()
        rows: list[tuple[int, Name, Sequence[str]]] = []
        if service.headless:
            by_target: dict[tuple[int, Name], list[str]] = {}
            for endpoint in self.index.endpoints(key):
                target = self._below(endpoint.hostname.encode(), service_name, namespace, b"svc")
                for row in endpoint.ports:
                    if port is None or (row.name and (row.name, row.protocol) == port):
                        by_target.setdefault((row.number, target), []).append(endpoint.address)
            rows = [(number, target, addresses) for (number, target), addresses in by_target.items()]
        else:
            target = self._below(service_name, namespace, b"svc")
            rows = [
                (row.number, target, service.addresses)
                for row in service.ports
                if port is None or (row.name and (row.name, row.protocol) == port)
            ]
        if not rows:
            return NO_DATA if port is None and not service.headless else NO_NAME
        if type_ != SRV:
            return NO_DATA
        weight = max(1, 100 // len(rows))
        records = tuple(Record(name, SRV, self.ttl, (0, weight, number, target)) for number, target, _ in rows)
        additional = {(target, *typed): None for _, target, ips in rows for typed in _typed(ips)}
        return Answer(
            records=records,
            additional=tuple(Record(target, family, self.ttl, ip) for target, family, ip in additional),
        )

    def _pod(self, name: Name, rest: list[str], type_: int) -> Answer:
        if not rest:
            return NO_DATA
        if rest[-1] not in self.index.namespaces or len(rest) > 2:
            return NO_NAME
        if len(rest) == 1:
            return NO_DATA
        text = rest[0]
        for separator in (".", ":"):
            if _is_address(text.replace("-", separator)):
                return self._addresses(name, [str(ip_address(text.replace("-", separator)))], type_)
        return NO_NAME

    def _addresses(self, name: Name, addresses: Iterable[str], type_: int) -> Answer:
        unique = dict.fromkeys(addresses)
        records = tuple(Record(name, family, self.ttl, ip) for family, ip in _typed(unique) if family == type_)
        return Answer(records=records)


def reverse_address(name: Name) -> str | None:
    """Returns the address of a name below in-addr.arpa or ip6.arpa; None for other names."""
    if len(name) == 6 and name[4:] == _REVERSE4:
        text = b".".join(reversed(name[:4])).decode("ascii", "replace")
        return _canonical(IPv4Address, text)
    if len(name) == 34 and name[32:] == _REVERSE6 and all(len(label) == 1 for label in name[:32]):
        digits = b"".join(reversed(name[:32])).decode("ascii", "replace")
        text = ":".join(digits[start : start + 4] for start in range(0, 32, 4))
        return _canonical(IPv6Address, text)
    return None


def _canonical(family: Callable[[str], IPv4Address | IPv6Address], text: str) -> str | None:
    try:
        return str(family(text))
    except ValueError:
        return None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _typed(addresses: Iterable[str]) -> list[tuple[int, str]]:
    return [(AAAA if ":" in address else A, address) for address in addresses]
