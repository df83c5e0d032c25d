"""A ValidatingAdmissionPolicy that refuses parameters when a claim, a template or a class is written. Made from the
schema; the driver validates everything again, with the device at hand."""

from typing import Any

from podwire.dradriver.names import DRIVER
from podwire.dradriver.parameters import entries, field_checks, forms
from podwire.dradriver.parameters.expressions import (
    INDEXES,
    Check,
    constants,
    fields,
    first,
    listed,
    said,
    said_wrong,
    text,
    wrong_with,
)
from podwire.dradriver.parameters.forms import Entries, Form, Group
from podwire.dradriver.parameters.schema import API_VERSION, FIELDS, KIND, LOCKS, MODES
from podwire.objects.claims import POD_CLAIM

NAME = f"parameters.{DRIVER}"
Object = dict[str, Any]
LONGEST_LIST = 64
"""The limit of all lists that are validated: configs, addresses, routes, rules, neighbours, locks."""
_CLASSES = "request.resource.resource == 'deviceclasses'"
_PLACES = {"deviceclasses": "spec.config", "resourceclaims": "spec.devices.config"}
_TEMPLATES = "spec.spec.devices.config"
_INNER = ("interface", "ethtool")


def policy() -> list[Object]:
    """The policy, and the binding that puts it in force everywhere."""
    return [
        _object("ValidatingAdmissionPolicy", _spec()),
        _object("ValidatingAdmissionPolicyBinding", {"policyName": NAME, "validationActions": ["Deny"]}),
    ]


def _object(kind: str, spec: Object) -> Object:
    meta = {"name": NAME}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def _spec() -> Object:
    parts = _parts()
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_rule()]},
        "matchConditions": [
            # A claim that was made from a template was validated there, and pods wait for it.
            {"name": "is-no-copy", "expression": _original()},
            # What was written before the policy was there must not keep its owner from removing a finalizer.
            {"name": "says-something-new", "expression": "oldObject == null || object.spec != oldObject.spec"},
            {"name": "speaks-to-this-driver", "expression": _speaks()},
        ],
        "variables": [*_variables(), *({"name": name, "expression": part} for name, part in parts.items())],
        "validations": [_validation(name) for name in parts],
    }


def _rule() -> Object:
    return {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1", "v1beta1", "v1beta2"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deviceclasses", "resourceclaims", "resourceclaimtemplates"],
        "scope": "*",
    }


def _validation(name: str) -> Object:
    wrong = f"variables.{name}"
    return {
        "expression": f"size({wrong}) == 0",
        "message": f"what is said to {DRIVER} is not valid",
        "messageExpression": f"{wrong}.join('; ')",
        "reason": "Invalid",
    }


def _configs() -> str:
    """Where each of the three kinds has its configs; any of them may have none."""
    spec = "dyn(object).spec"
    nested = "(has({0}.devices) && has({0}.devices.config) ? {0}.devices.config : [])"
    claim, template = nested.format(spec), nested.format(f"{spec}.spec")
    return (
        f"{_CLASSES} ? (has({spec}.config) ? {spec}.config : []) : "
        f"request.resource.resource == 'resourceclaims' ? {claim} : {template}"
    )


def _original() -> str:
    notes = "object.metadata.annotations"
    copy = f"has({notes}) && {text(POD_CLAIM)} in {notes}"
    return f"request.resource.resource != 'resourceclaims' || !({copy})"


def _speaks() -> str:
    return f"({_configs()}).exists(c, has(c.opaque) && c.opaque.driver == {text(DRIVER)})"


def _variables() -> list[Object]:
    places = "".join(f"request.resource.resource == {text(kind)} ? {text(at)} : " for kind, at in _PLACES.items())
    config = "variables.configs[i]"
    ours = f"i < size(variables.configs) && has({config}.opaque) && {config}.opaque.driver == {text(DRIVER)}"
    at = "variables.place + '[' + string(i) + '].opaque.parameters'"
    spot = f"{{'at': dyn({at}), 'v': dyn({config}.opaque.parameters)}}"
    found = {
        "indexes": constants(range(LONGEST_LIST)),
        "place": places + text(_TEMPLATES),
        "configs": _configs(),
        "ours": f"{INDEXES}.filter(i, {ours}).map(i, {spot})",
        **{name: _below("ours", name) for name in _INNER},
        "vrf": _below("interface", "vrf"),
    }
    return [{"name": name, "expression": expression} for name, expression in found.items()]


def _below(above: str, name: str) -> str:
    """The groups of that name, where they are objects; where they are something else, another check reports it."""
    there = f"has(s.v.{name}) && type(s.v.{name}) == map"
    return f"variables.{above}.filter(s, {there}).map(s, {{'at': dyn(s.at + {text('.' + name)}), 'v': s.v.{name}}})"


def _parts() -> dict[str, str]:
    """By the name of a variable: a list of what is wrong with one part of the parameters."""
    plain: dict[str, Form] = {name: form for name, form in FIELDS.items() if not isinstance(form, Entries)}
    lists = {name: form for name, form in FIELDS.items() if isinstance(form, Entries)}
    interface = FIELDS["interface"]
    ethtool = FIELDS["ethtool"]
    if not isinstance(interface, Group) or not isinstance(ethtool, Group):
        raise TypeError("both are groups")
    vrf = interface.fields["vrf"]
    if not isinstance(vrf, Group):
        raise TypeError("it is a group")
    checked = {
        "wrongHead": _errors("ours", _texts(_head(plain))),
        "wrongInterface": _errors("interface", fields(interface.fields, "s.v", "s.at")),
        "wrongVRF": _errors("vrf", fields(vrf.fields, "s.v", "s.at")),
        "wrongEthtool": _errors("ethtool", fields(ethtool.fields, "s.v", "s.at")),
        **{
            f"wrong{name.capitalize()}": _errors("ours", said_wrong(name, form, "s.v", "s.at"))
            for name, form in lists.items()
        },
    }
    fine = " && ".join(f"size(variables.{name}) == 0" for name in checked)
    together = f"({_errors('interface', _texts(_interface_clashes()))})\n+ ({_errors('ours', _texts(_top_clashes()))})"
    return {**checked, "wrongTogether": f"{fine} ?\n{together} : []"}


def _errors(spots: str, wrong: str) -> str:
    return f"variables.{spots}.map(s,\n{wrong}\n).filter(m, m != '')"


def _head(plain: dict[str, Form]) -> list[str]:
    known = ["apiVersion", "kind", "locks", *FIELDS]
    heads = [
        first(
            [Check(f"!has(s.v.{name}) || s.v.{name} != {text(wanted)}", text(f"must be {wanted}"))], f"s.at + '.{name}'"
        )
        for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND))
    ]
    nobody = text(": only a DeviceClass locks fields")
    locks = wrong_with(LOCKS, "s.v.locks", "s.at + '.locks'")
    unknown = (
        f"s.v.filter(k, !(k in {constants(known)})).map(k, s.at + '.' + k + {text(': ' + forms.UNKNOWN)}).join('; ')"
    )
    return [
        *heads,
        unknown,
        *(said_wrong(name, form, "s.v", "s.at") for name, form in plain.items()),
        f"(!has(s.v.locks) ? '' : !({_CLASSES}) ? s.at + '.locks' + {nobody} : s.v.locks == null ? '' : {locks})",
    ]


def _texts(messages: list[str]) -> str:
    return f"{listed(messages)}.filter(m, m != '').join('; ')"


def _interface_clashes() -> list[str]:
    """The same that `clashes` knows of one interface; here all fields are of their types."""
    dhcp = f"{said('s.v', 'dhcp')} && s.v.dhcp"
    found = [
        _clash("dhcp", f"{dhcp} && {said('s.v', other)} && size(s.v.{other}) > 0", field_checks.not_with(other))
        for other in ("addresses", "addressPool")
    ]
    kind = said("s.v", "kind")
    for path, kinds in field_checks.BELONGS.items():
        name = path.partition(".")[2]
        wrong = f"{kind} && {said('s.v', name)} && !(s.v.kind in {constants(kinds)})"
        found.append(_clash(name, wrong, f"belongs to {' and '.join(kinds)}"))
    for mode, modes in MODES.items():
        wrong = f"{kind} && s.v.kind == {text(mode)} && {said('s.v', 'mode')} && !(s.v.mode in {constants(modes)})"
        why = f"{text(f'{mode} has no mode ')} + s.v.mode + {text('; it has ' + ', '.join(modes))}"
        found.append(first([Check(wrong, why)], "s.at + '.mode'"))
    ipvlan = f"{kind} && s.v.kind == 'ipvlan'"
    six = "s.v.addresses.exists(a, cidr(a).ip().family() == 6)"
    small = f"{said('s.v', 'mtu')} && s.v.mtu < {field_checks.LOWEST_IPV6_MTU} && {said('s.v', 'addresses')} && {six}"
    itself = f"{said('s.v', 'vrf')} && {said('s.v.vrf', 'name')} && {said('s.v', 'name')} && s.v.vrf.name == s.v.name"
    return [
        *found,
        _clash("mac", f"{ipvlan} && {said('s.v', 'mac')}", field_checks.NO_OWN_MAC),
        _clash("dhcp", f"{ipvlan} && {dhcp}", field_checks.NO_DHCP),
        _clash("mtu", small, field_checks.TOO_SMALL),
        _clash("vrf.name", itself, field_checks.ITSELF),
    ]


def _clash(name: str, wrong: str, why: str) -> str:
    return first([Check(wrong, text(why))], f"s.at + {text('.' + name)}")


def _top_clashes() -> list[str]:
    group = f"{said('s.v', 'interface')} && {said('s.v.interface', 'vrf')}"
    vrf = f"{group} && ({said('s.v.interface.vrf', 'name')} || {said('s.v.interface.vrf', 'table')})"
    rules = f"{said('s.v', 'rules')} && size(s.v.rules) > 0"
    return [_clash("rules", f"{vrf} && {rules}", field_checks.NO_RULES), *_route_clashes(), *_rule_clashes()]


def _route_clashes() -> list[str]:
    route, at = "s.v.routes[j]", "s.at + '.routes[' + string(j) + ']'"
    gateway, scope = said(route, "gateway"), said(route, "scope")
    linked = f"({scope} && {route}.scope == 'link')"
    checks = [
        Check(f"{gateway} && {linked}", text(entries.LINK_HAS_NONE)),
        Check(f"!({gateway}) && !{linked}", text(entries.NEEDED)),
        Check(f"{gateway} && {_unlike(route, 'gateway')}", _families(route, "gateway")),
    ]
    source = Check(f"{said(route, 'source')} && {_unlike(route, 'source')}", _families(route, "source"))
    return [
        _each("routes", first(checks, f"{at} + '.gateway'")),
        _each("routes", first([source], f"{at} + '.source'")),
    ]


def _rule_clashes() -> list[str]:
    rule, at = "s.v.rules[j]", "s.at + '.rules[' + string(j) + ']'"
    source, destination = said(rule, "source"), said(rule, "destination")
    nothing = Check(f"!({source}) && !({destination})", text(entries.ABOUT_NOTHING))
    of_source, of_destination = (f"cidr({rule}.{name}).ip().family()" for name in ("source", "destination"))
    message = f"'is IPv' + string({of_destination}) + ', and the source is IPv' + string({of_source})"
    unlike = Check(f"{source} && {destination} && {of_source} != {of_destination}", message)
    return [
        _each("rules", first([nothing], f"{at} + '.source'")),
        _each("rules", first([unlike], f"{at} + '.destination'")),
    ]


def _each(name: str, wrong: str) -> str:
    found = f"{INDEXES}.filter(j, j < size(s.v.{name})).map(j, {wrong}).filter(m, m != '').join('; ')"
    return f"({said('s.v', name)} ? {found} : '')"


def _unlike(route: str, name: str) -> str:
    return f"ip({route}.{name}).family() != cidr({route}.destination).ip().family()"


def _families(route: str, name: str) -> str:
    return (
        f"'is IPv' + string(ip({route}.{name}).family()) + ', and the destination is IPv' + "
        f"string(cidr({route}.destination).ip().family())"
    )
