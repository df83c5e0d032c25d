"""The cluster IPs of a Service and the families they are of."""

from collections.abc import Sequence

from podwire.kinds.field_checks import Choice, Errors, Object, named, one_per_family
from podwire.objects import names
from podwire.protocols.k8sapi.status import duplicate, invalid, required

_FAMILIES = Choice(("IPv4", "IPv6"))
_POLICIES = Choice(("PreferDualStack", "RequireDualStack", "SingleStack"))
_PATH = "spec.clusterIPs"


def cluster_ips(spec: Object, known: Sequence[str], errors: Errors) -> None:
    """`known` were accepted before."""
    one, all_ips = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if one and not all_ips:
        errors.append(required(_PATH))
    elif one and all_ips[0] != one:
        errors.append(invalid(_PATH, all_ips, "first value must match `clusterIP`"))
    elif all_ips and not one:
        errors.append(invalid(_PATH, all_ips, "must be empty when `clusterIP` is not specified"))
    _families(spec, errors)
    if not _each_ip(all_ips, known, errors) or all_ips == ["None"]:
        return
    if len(all_ips) > 1 and not one_per_family(all_ips):
        errors.append(invalid(_PATH, all_ips, "may specify no more than one IP for each IP family"))
    for index, (address, family) in enumerate(zip(all_ips, spec.get("ipFamilies") or (), strict=False)):
        if (":" in address) is not (family == "IPv6"):
            detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            errors.append(invalid(f"{_PATH}[{index}]", address, detail))


def _families(spec: Object, errors: Errors) -> None:
    seen: set[str] = set()
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        path = f"spec.ipFamilies[{index}]"
        _FAMILIES.check(family, path, errors)
        if family in seen:
            errors.append(duplicate(path, family))
        seen.add(family)
    if (policy := spec.get("ipFamilyPolicy")) is not None:
        _POLICIES.check(policy, "spec.ipFamilyPolicy", errors)


def _each_ip(addresses: list[str], known: Sequence[str], errors: Errors) -> bool:
    """Returns whether all are addresses, so that further checks can parse them."""
    before = len(errors)
    for index, address in enumerate(addresses):
        if index == 0 and address == "None":
            if len(addresses) > 1:
                errors.append(invalid(_PATH, addresses, "'None' must be the first and only value"))
        elif address not in known:
            named(names.ip, address, f"{_PATH}[{index}]", errors)
    if len(addresses) > 2:
        errors.append(invalid(_PATH, addresses, "may only hold up to 2 values"))
    return len(errors) == before


def changes(spec: Object, before: Object, errors: Errors) -> None:
    """Checks changes: the first address stays; a second one may be added, and released with SingleStack."""
    if "ExternalName" in (spec.get("type"), before.get("type")):
        return
    _family_changes(spec, before, errors)
    new, old = list(spec.get("clusterIPs") or ()), list(before.get("clusterIPs") or ())
    if len(new) == len(old):
        for index, (address, was) in enumerate(zip(new, old, strict=True)):
            if address != was:
                errors.append(invalid(f"{_PATH}[{index}]", new, "may not change once set"))
        return
    if old and not new:
        errors.append(invalid(f"{_PATH}[0]", None, "primary clusterIP can not be unset"))
    elif old and new[0] != old[0]:
        errors.append(invalid(f"{_PATH}[0]", new, "may not change once set"))
    if len(new) == 1 < len(old) and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        errors.append(invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail))


def _family_changes(spec: Object, before: Object, errors: Errors) -> None:
    """Families follow the same rules, except those of headless services, which may change."""
    new, old = list(spec.get("ipFamilies") or ()), list(before.get("ipFamilies") or ())
    if ["None"] in (spec.get("clusterIPs"), before.get("clusterIPs")):
        return
    if old and new and (new[0] != old[0] or (len(new) == len(old) and new != old)):
        errors.append(invalid("spec.ipFamilies[0]", new, "may not change once set"))
    if len(new) == 1 < len(old) and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        errors.append(invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail))
