"""The endpoint of the scheduler and the controllers, as their options describe it."""

import argparse
from pathlib import Path

import pytest

from podwire.cli.endpoint_options import add_endpoint, endpoint_of
from podwire.cli.main import UserError
from podwire.cluster.component_endpoints import Endpoint


def read(*words: str) -> Endpoint | None:
    parser = argparse.ArgumentParser()
    add_endpoint(parser, 10259)
    return endpoint_of(parser.parse_args(words))


def test_without_a_port_there_is_no_endpoint():
    assert read() is None


def test_a_port_needs_a_certificate():
    with pytest.raises(UserError, match="--secure-port needs --tls-cert-file and --tls-private-key-file"):
        read("--secure-port", "1", "--tls-cert-file", "a")


def test_the_options_are_taken_over():
    endpoint = read(
        "--secure-port", "1", "--tls-cert-file", "a", "--tls-private-key-file", "b", "--bind-address", "::1"
    )
    assert endpoint == Endpoint(port=1, address="::1", certificate=Path("a"), key=Path("b"))
