"""The address families of a service: they follow from its policy, its addresses and the ranges of the cluster. Pure.

A service never changes between one family and two without a word of its owner: an update that says nothing keeps the
policy, and one with PreferDualStack and the same fields keeps its addresses, also when the ranges of the cluster have
changed meanwhile.
"""

from collections.abc import Sequence

from podwire.kinds.builtin.core.service.cluster_ips import cluster_ips
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import FieldError, invalid

SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
NO_ADDRESS = "None"
OTHER = {"IPv4": "IPv6", "IPv6": "IPv4"}
_POLICY = "spec.ipFamilyPolicy"


def family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def decide(spec: Object, before: Object | None, configured: Sequence[str]) -> list[FieldError]:
    """Sets policy and families of a service with addresses; takes back the second ones of a service that is now of one
    family. Returns the reasons against it. `configured` are the families of the cluster, the default one first."""
    if before and _is_unchanged(spec, before):
        return []
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = _policy(spec, before)
    errors: list[FieldError] = []
    cluster_ips(spec, (before or {}).get("clusterIPs") or (), errors)
    if errors:
        return errors
    if before:
        _release(spec, before, errors)
    _check_number(spec, errors)
    _infer(spec, configured, errors)
    if errors:
        return errors
    # Endpoints of a headless service without selector are its owner's, of whatever family.
    free = spec.get("clusterIP") == NO_ADDRESS and not spec.get("selector")
    if not free:
        _check_configured(spec, configured, errors)
    families = list(spec.get("ipFamilies") or configured[:1])
    if spec["ipFamilyPolicy"] != SINGLE and len(families) == 1 and (free or len(configured) > 1):
        families.append(OTHER[families[0]])
    spec["ipFamilies"] = families
    return errors


def _check_configured(spec: Object, configured: Sequence[str], errors: list[FieldError]) -> None:
    if spec["ipFamilyPolicy"] == REQUIRE and len(configured) == 1:
        errors.append(invalid(_POLICY, REQUIRE, "this cluster is not configured for dual-stack services"))
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in configured:
            errors.append(invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))


def _is_unchanged(spec: Object, before: Object) -> bool:
    fields = ("type", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    return spec.get("ipFamilyPolicy") == PREFER and all(spec.get(field) == before.get(field) for field in fields)


def _policy(spec: Object, before: Object | None) -> str:
    if before and before.get("ipFamilyPolicy"):
        return str(before["ipFamilyPolicy"])
    return REQUIRE if spec.get("clusterIP") == NO_ADDRESS and not spec.get("selector") else SINGLE


def _release(spec: Object, before: Object, errors: list[FieldError]) -> None:
    """SingleStack alone says that the second address and family go; without it, leaving one out is a mistake."""
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        new, old = spec.get(field) or [], before.get(field) or []
        if spec["ipFamilyPolicy"] == SINGLE:
            if new == old and len(new) > 1:
                spec[field] = new[:1]
        elif new and len(new) < len(old):
            detail = f"must be 'SingleStack' to release the secondary {what}"
            errors.append(invalid(_POLICY, spec["ipFamilyPolicy"], detail))


def _check_number(spec: Object, errors: list[FieldError]) -> None:
    if spec["ipFamilyPolicy"] != SINGLE:
        return
    for field, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
        if len(spec.get(field) or ()) > 1:
            detail = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            errors.append(invalid(_POLICY, SINGLE, detail))


def _infer(spec: Object, configured: Sequence[str], errors: list[FieldError]) -> None:
    """Adds the families of addresses whose family was left out."""
    addresses, families = spec.get("clusterIPs") or [], list(spec.get("ipFamilies") or ())
    for index, address in enumerate(addresses):
        if address == NO_ADDRESS or index < len(families):
            continue
        if family_of(address) in configured:
            families.append(family_of(address))
        else:
            detail = f"{family_of(address)} is not configured on this cluster"
            errors.append(invalid(f"spec.clusterIPs[{index}]", addresses, detail))
    if families:
        spec["ipFamilies"] = families
