"""NetworkPolicy: valid ports, and peers of one kind each."""

import ipaddress
from collections.abc import Collection, Iterator
from typing import Any

from podwire.kinds.field_checks import Choice, Errors, Object, label_selector, named, port_number
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, age_of, name_of, part, selector_text
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, required

_PROTOCOLS = Choice(("TCP", "UDP", "SCTP"))
_TYPES = Choice(("Ingress", "Egress"))
_SIDES = (("ingress", "from"), ("egress", "to"))

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def validate_create(obj: Object) -> list[FieldError]:
    return _policy(obj.get("spec") or {}, frozenset())


def validate_update(new: Object, old: Object) -> list[FieldError]:
    """Checks a change; networks that the policy had before are accepted in any form."""
    return _policy(new.get("spec") or {}, frozenset(_networks(old.get("spec") or {})))


def _networks(spec: Object) -> Iterator[str]:
    for side, peers in _SIDES:
        for rule in spec.get(side) or ():
            for peer in rule.get(peers) or ():
                if block := peer.get("ipBlock"):
                    yield block.get("cidr", "")
                    yield from block.get("except") or ()


def _policy(spec: Object, known: Collection[str]) -> list[FieldError]:
    errors: Errors = []
    label_selector(spec.get("podSelector"), "spec.podSelector", errors)
    for side, peers in _SIDES:
        for index, rule in enumerate(spec.get(side) or ()):
            path = f"spec.{side}[{index}]"
            for place, port in enumerate(rule.get("ports") or ()):
                _port(port, f"{path}.ports[{place}]", errors)
            for place, peer in enumerate(rule.get(peers) or ()):
                _peer(peer, f"{path}.{peers}[{place}]", known, errors)
    types = spec.get("policyTypes") or ()
    if len(types) > 2:
        errors.append(invalid("spec.policyTypes", types, "may not specify more than two policyTypes"))
        return errors
    for index, type_ in enumerate(types):
        _TYPES.check(type_, f"spec.policyTypes[{index}]", errors)
    return errors


def _port(port: Object, path: str, errors: Errors) -> None:
    if (protocol := port.get("protocol")) is not None:
        _PROTOCOLS.check(protocol, f"{path}.protocol", errors)
    number, end = port.get("port"), port.get("endPort")
    if isinstance(number, int):
        port_number(number, f"{path}.port", errors)
        if end is not None:
            if end < number:
                errors.append(invalid(f"{path}.endPort", end, "must be greater than or equal to `port`"))
            port_number(end, f"{path}.endPort", errors)
        return
    if end is not None:
        why = "non-numeric" if number is not None else "not specified"
        errors.append(invalid(f"{path}.endPort", end, f"may not be specified when `port` is {why}"))
    if number is not None:
        named(names.port_name, number, f"{path}.port", errors)


def _peer(peer: Object, path: str, known: Collection[str], errors: Errors) -> None:
    given = [word for word in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(word) is not None]
    for field in ("podSelector", "namespaceSelector"):
        label_selector(peer.get(field), f"{path}.{field}", errors)
    if (block := peer.get("ipBlock")) is not None:
        _block(block, f"{path}.ipBlock", known, errors)
    if not given:
        errors.append(required(path, "must specify a peer"))
    elif len(given) > 1 and "ipBlock" in given:
        errors.append(forbidden(path, "may not specify both ipBlock and another peer"))


def _block(block: Object, path: str, known: Collection[str], errors: Errors) -> None:
    text = block.get("cidr", "")
    if not text:
        errors.append(required(f"{path}.cidr"))
        return
    whole = _network(text, f"{path}.cidr", known, errors)
    for index, excepted in enumerate(block.get("except") or ()):
        place = f"{path}.except[{index}]"
        part = _network(excepted, place, known, errors)
        if whole is not None and part is not None and not _strictly_within(part, whole):
            errors.append(invalid(place, excepted, "must be a strict subset of `cidr`"))


def _network(text: str, path: str, known: Collection[str], errors: Errors) -> Network | None:
    if text not in known:
        named(names.cidr, text, path, errors)
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _strictly_within(part: Network, whole: Network) -> bool:
    if part.version != whole.version or part.prefixlen <= whole.prefixlen:
        return False
    return part.network_address in whole


def default(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")


def row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), selector_text(part(obj, "spec"), "podSelector"), age_of(obj, now)]


def policy_warnings(new: Object, _old: Object | None) -> list[str]:
    """Warns about IPv6 networks that are not spelled as they are shown elsewhere."""
    warnings: list[str] = []
    for direction, peers in _SIDES:
        for index, rule in enumerate(new["spec"].get(direction) or ()):
            for number, peer in enumerate(rule.get(peers) or ()):
                path, block = f"spec.{direction}[{index}].{peers}[{number}].ipBlock", peer.get("ipBlock") or {}
                warnings += _spelling(block.get("cidr") or "", f"{path}.cidr")
                for place, cidr in enumerate(block.get("except") or ()):
                    warnings += _spelling(cidr, f"{path}.except[{place}]")
    return warnings


def _spelling(cidr: str, path: str) -> Iterator[str]:
    if ":" in cidr and (canonical := str(ipaddress.ip_network(cidr, strict=False))) != cidr:
        yield f'{path}: IPv6 CIDR value "{cidr}" should be in RFC 5952 canonical format ("{canonical}")'


NETWORK_POLICY = Strategy(
    group="networking.k8s.io",
    kind="NetworkPolicy",
    parts={"spec": {"podSelector": {}}},
    default=default,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=policy_warnings,
    columns="Name|Pod-Selector|Age",
    row=row,
)
