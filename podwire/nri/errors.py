"""What a plugin's own side may raise.

NriError
  BadStart        a name, an index or a variable that no plugin can start with
  Refused         the runtime does not let this plugin in, and would not the next time either
  NotConnected    the runtime was asked for something while there is none

What the runtime answers is an RpcError of `protocols.grpc_status`; hooks may raise those to choose their code.
"""


class NriError(Exception):
    """Told in one sentence."""


class BadStart(NriError):
    """Names the field and the reason."""


class Refused(NriError):
    """The runtime's own words."""


class NotConnected(NriError):
    """There is no runtime to ask at the moment."""
