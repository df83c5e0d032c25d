"""The OCI distribution protocol without sockets: hosts of a registry, challenges, tokens, error bodies."""

from podwire.protocols.distribution.challenges import BadChallenge, Challenge, parse_challenges
from podwire.protocols.distribution.hosts import BadHosts, Host, Tls, default_hosts, parse_hosts
from podwire.protocols.distribution.http import describe_error
from podwire.protocols.distribution.tokens import BadToken, Login, Token, parse_token, token_request

__all__ = [
    "BadChallenge",
    "BadHosts",
    "BadToken",
    "Challenge",
    "Host",
    "Login",
    "Tls",
    "Token",
    "default_hosts",
    "describe_error",
    "parse_challenges",
    "parse_hosts",
    "parse_token",
    "token_request",
]
