"""Errors of the plugin side.

NriError
  BadStart        an invalid name, index or variable
  Refused         the runtime rejected this plugin, and would reject it again
  NotConnected    the runtime was called without a connection

An error response of the runtime is an RpcError of `protocols.grpc_status`; hooks may raise those to choose their code.
"""


class NriError(Exception):
    """Its message is one sentence."""


class BadStart(NriError):
    """Names the field and the error."""


class Refused(NriError):
    """Contains the runtime's error."""


class NotConnected(NriError):
    """There is no connection to a runtime at the moment."""
