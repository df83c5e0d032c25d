import pytest

from podwire.store import BadUrl
from podwire.store.etcd.address import Address, parse


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("etcd://localhost", Address(endpoints=("localhost:2379",))),
        ("etcd://localhost/", Address(endpoints=("localhost:2379",))),
        ("etcd://10.0.0.1:2379,h:99,[::1]:5", Address(endpoints=("10.0.0.1:2379", "h:99", "[::1]:5"))),
        ("etcd://h:1?prefix=/k8s/one", Address(endpoints=("h:1",), prefix="/k8s/one")),
        ("etcd://h:1?ca=/a&cert=/b&key=/c", Address(endpoints=("h:1",), ca="/a", cert="/b", key="/c")),
    ],
)
def test_a_url_names_the_etcd_endpoints(url, address):
    assert parse(url) == address


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("http://h:1", "does not begin with etcd://"),
        ("etcd://", "'' is not HOST:PORT"),
        ("etcd://a:1,,b:2", "'' is not HOST:PORT"),
        ("etcd://h:port", "'h:port' is not HOST:PORT"),
        ("etcd://h:70000", "'h:70000' is not HOST:PORT"),
        ("etcd://me:secret@h:1", "is not HOST:PORT"),
        ("etcd://h:1/registry", "a path is given as ?prefix="),
        ("etcd://h:1?perfix=/x", "unknown option 'perfix' (known: ca, cert, key, prefix)"),
        ("etcd://h:1?ca=", "option ca is empty"),
        ("etcd://h:1?ca=/a&cert=/b", "cert and key must be given together"),
        ("etcd://h:1?cert=/b&key=/c", "cert and key need ca"),
        ("etcd://h:1?prefix=registry", "must begin with '/'"),
        ("etcd://h:1?prefix=/registry/", "not end in it"),
    ],
)
def test_a_bad_url_is_refused_with_the_reason(url, wrong):
    with pytest.raises(BadUrl) as refused:
        parse(url)
    assert str(refused.value).startswith(url)
    assert wrong in str(refused.value)
