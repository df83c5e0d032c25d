"""Where a question goes, and where it does not."""

import pytest

from podwire.kubelet.probes.ports import ProbeUnknown
from podwire.kubelet.probes.targets import PROBE_AGENT, headers_of, host_of, port_of, redirected, url_of
from podwire.objects.containers import Container, HttpGet, HttpHeader, Port
from podwire.protocols.k8sapi.client_side import Reply

CONTAINER = Container(name="app", ports=(Port(container_port=8080, name="web"), Port(container_port=70000, name="bad")))
IPS = ("10.1.2.3", "fd00::3")


@pytest.mark.parametrize(
    ("get", "url"),
    [
        pytest.param(HttpGet(port=80), "http://10.1.2.3:80/", id="the pod's address"),
        pytest.param(HttpGet(port="web", path="/ok"), "http://10.1.2.3:8080/ok", id="a port by its name"),
        pytest.param(HttpGet(port="81"), "http://10.1.2.3:81/", id="a number that came as text"),
        pytest.param(HttpGet(port=443, scheme="HTTPS"), "https://10.1.2.3:443/", id="with TLS"),
        pytest.param(HttpGet(port=80, host="fd00::9"), "http://[fd00::9]:80/", id="another host"),
        pytest.param(HttpGet(port=80, path="ok"), "http://10.1.2.3:80/ok", id="a path without a slash"),
        pytest.param(HttpGet(port=80, path="/a?b=c&d"), "http://10.1.2.3:80/a?b=c&d", id="with a query"),
        pytest.param(HttpGet(port=80, path="/a#b"), "http://10.1.2.3:80/a", id="a fragment stays at home"),
        pytest.param(HttpGet(port=80, path="/%41 b\r\nX: y"), "http://10.1.2.3:80/%41%20b%0D%0AX:%20y", id="odd bytes"),
        pytest.param(HttpGet(port=80, path="//evil/x"), "http://10.1.2.3:80//evil/x", id="no path becomes a host"),
    ],
)
def test_a_url_has_scheme_host_port_and_path_of_the_spec(get, url):
    assert url_of(get, CONTAINER, IPS) == url


@pytest.mark.parametrize(
    ("port", "why"),
    [
        pytest.param("grpc", "couldn't find port", id="no such name"),
        pytest.param(0, "invalid port number: 0", id="zero"),
        pytest.param("bad", "invalid port number: 70000", id="a name for a number that is none"),
        pytest.param("65536", "invalid port number: 65536", id="too large"),
    ],
)
def test_a_port_that_is_none_leaves_the_question_unasked(port, why):
    with pytest.raises(ProbeUnknown, match=why):
        port_of(port, CONTAINER)


def test_a_pod_without_an_address_is_not_asked():
    with pytest.raises(ProbeUnknown):
        host_of("", ())


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        pytest.param((), [("User-Agent", PROBE_AGENT), ("Accept", "*/*")], id="who asks, and what is welcome"),
        pytest.param((("user-agent", "me"),), [("Accept", "*/*"), ("user-agent", "me")], id="unless it is given"),
        pytest.param((("Accept", ""), ("User-Agent", "")), [], id="or given as nothing"),
        pytest.param(
            (("Host", "a.example"), ("X-A", ""), ("X-A", "2")),
            [("User-Agent", PROBE_AGENT), ("Accept", "*/*"), ("Host", "a.example"), ("X-A", ""), ("X-A", "2")],
            id="others as they are",
        ),
    ],
)
def test_headers(given, sent):
    get = HttpGet(port=80, http_headers=tuple(HttpHeader(name=name, value=value) for name, value in given))
    assert headers_of(get, PROBE_AGENT) == sent


HERE = "http://10.1.2.3:8080/a"


@pytest.mark.parametrize(
    ("location", "onward"),
    [
        pytest.param("/b", "http://10.1.2.3:8080/b", id="another path"),
        pytest.param("b?c=d#e", "http://10.1.2.3:8080/b?c=d", id="a relative one"),
        pytest.param("http://10.1.2.3:9090/b", "http://10.1.2.3:9090/b", id="another port of the same host"),
        pytest.param("https://10.1.2.3/b", "https://10.1.2.3:443/b", id="with TLS"),
        pytest.param("http://10.1.2.3:8080/ b", "http://10.1.2.3:8080/%20b", id="odd bytes are quoted"),
        pytest.param("http://169.254.169.254/latest/meta-data", None, id="never to the metadata service"),
        pytest.param("//169.254.169.254/", None, id="nor without a scheme"),
        pytest.param("http://10.1.2.3@169.254.169.254/", None, id="nor behind a user name"),
        pytest.param("http://10.1.2.3.evil.example/", None, id="nor to a longer name"),
        pytest.param("http://localhost:10250/", None, id="nor to ourselves"),
        pytest.param("file:///etc/shadow", None, id="nor to files"),
        pytest.param("gopher://10.1.2.3/", None, id="nor in other tongues"),
        pytest.param("http://[::1/", None, id="nor to what is not a URL"),
        pytest.param("http://10.1.2.3:99999/", None, id="nor to a port that is none"),
        pytest.param("http://169.254.169.254\\@10.1.2.3/x", "http://10.1.2.3:80/x", id="every reader reads our host"),
        pytest.param("", None, id="nowhere"),
    ],
)
def test_a_redirect_is_followed_to_the_same_host_only(location, onward):
    found = redirected(HERE, [], Reply(302, {"location": location}, b""))
    assert (None if found is None else found[0]) == onward


@pytest.mark.parametrize("status", [200, 300, 304, 305, 404])
def test_other_answers_are_answers(status):
    assert redirected(HERE, [], Reply(status, {"location": "/b"}, b"")) is None


def test_the_host_header_goes_along_until_the_host_is_named():
    headers = [("Host", "a.example"), ("X", "y")]
    relative = redirected(HERE, headers, Reply(302, {"location": "/b"}, b""))
    absolute = redirected(HERE, headers, Reply(302, {"location": "http://10.1.2.3/b"}, b""))
    assert relative is not None
    assert absolute is not None
    assert relative[1] == headers
    assert absolute[1] == [("X", "y")]
