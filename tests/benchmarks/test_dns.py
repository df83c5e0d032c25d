"""The benchmark of the DNS server measures both kinds of names."""

import shutil

import pytest

from benchmarks import dns


@pytest.mark.skipif(shutil.which("dnsmasq") is None, reason="dnsmasq is not installed")
def test_ours_and_dnsmasq_answer_the_same_names():
    figures = list(dns.measure(0.1))
    assert [figure.peer.name for figure in figures] == ["budget", "dnsmasq", "budget", "dnsmasq"]
    assert all(figure.value > 0 for figure in figures)
