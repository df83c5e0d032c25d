"""Counters of links: /proc/net/dev, and those of a real namespace."""

import pytest

from podwire.linux.errors import NoSuchNamespace
from podwire.linux.net.link_counters import LinkCounters, parse_link_counters, read_link_counters

HEADINGS = (
    "Inter-|   Receive                |  Transmit\n face |bytes    packets errs drop |bytes    packets errs drop\n"
)


def test_rows_of_net_dev_are_read():
    text = (
        HEADINGS
        + "    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0:100 2 3 4 0 0 0 0 200 6 7 8 0 0 0 0\ngarbage\n\n"
    )
    assert parse_link_counters(text) == [LinkCounters("eth0", 100, 2, 3, 4, 200, 6, 7, 8)]


def test_a_namespace_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(NoSuchNamespace, match="nothing"):
        read_link_counters(tmp_path / "nothing")
