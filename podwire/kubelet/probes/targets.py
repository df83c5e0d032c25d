"""Targets of probes and hooks: host, port, URL and headers by the pod's spec. Pure."""

from collections.abc import Sequence
from urllib.parse import quote, urljoin, urlsplit

from podwire.kubelet.probes.ports import Headers, ProbeUnknown
from podwire.objects.containers import Container, HttpGet, IntOrString
from podwire.protocols.k8sapi.client_side import Reply

VERSION = "1.36"
PROBE_AGENT, HOOK_AGENT = f"kube-probe/{VERSION}", f"kube-lifecycle/{VERSION}"

_AS_THEY_ARE = "%/?:@!$&'()*+,;=~[]|"
"""Characters that are not quoted in a path with a query; the percent sign, because the path is quoted already."""

_FOLLOWED = (301, 302, 303, 307, 308)


def host_of(given: str, ips: Sequence[str]) -> str:
    """The host in the spec, else the pod's first address."""
    if host := given or next(iter(ips), ""):
        return host
    raise ProbeUnknown("the pod has no address yet")


def port_of(port: IntOrString, container: Container) -> int:
    """The number of a port, which may be given by name."""
    if isinstance(port, str):
        named = next((candidate.container_port for candidate in container.ports if candidate.name == port), None)
        if named is None and not port.isdecimal():
            raise ProbeUnknown(f'couldn\'t find port: "{port}" is not a name of a port of container {container.name}')
        port = int(port) if named is None else named
    if not 0 < port < 65536:
        raise ProbeUnknown(f"invalid port number: {port}")
    return port


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(get: HttpGet, container: Container, ips: Sequence[str]) -> str:
    where = join(host_of(get.host, ips), port_of(get.port, container))
    return f"{get.scheme.lower() or 'http'}://{where}{_path(get.path)}"


def headers_of(get: HttpGet, agent: str) -> list[tuple[str, str]]:
    """The headers of the spec, with default User-Agent and Accept. Either is omitted if the spec has it empty."""
    given = [(header.name, header.value) for header in get.http_headers]
    names = {name.lower() for name, _ in given}
    ours = [pair for pair in (("User-Agent", agent), ("Accept", "*/*")) if pair[0].lower() not in names]
    return ours + [(name, value) for name, value in given if value or name.lower() not in ("user-agent", "accept")]


def redirected(url: str, headers: Headers, reply: Reply) -> tuple[str, Headers] | None:
    """The next request after a redirect; None if the reply is not a redirect, or one to another host.

    A container controls the redirect, and the kubelet may reach hosts that the container may not. The host of the new
    URL is therefore copied from the old one, so that two URL parsers cannot disagree about it.
    """
    location = reply.headers.get("location", "")
    if reply.status not in _FOLLOWED or not location:
        return None
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, location))
        same = there.hostname == here.hostname and there.scheme in ("http", "https")
        port = there.port or (443 if there.scheme == "https" else 80)
    except ValueError:
        return None
    if not same:
        return None
    query = f"?{there.query}" if there.query else ""
    target = f"{there.scheme}://{join(here.hostname or '', port)}{_path(there.path + query)}"
    if urlsplit(location).netloc:  # it names the host, so the Host header of the spec does not apply any more
        headers = [pair for pair in headers if pair[0].lower() != "host"]
    return target, headers


def _path(path: str) -> str:
    whole, _, _ = path.partition("#")
    return quote(whole if whole.startswith("/") else f"/{whole}", safe=_AS_THEY_ARE)
