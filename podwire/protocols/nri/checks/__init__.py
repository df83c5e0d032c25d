"""What no answer may say, whoever gives it: found before anything of it is taken, told with the path of the field."""

from podwire.protocols.nri.checks.adjustment import check_adjustment
from podwire.protocols.nri.checks.resources import check_update

__all__ = ["check_adjustment", "check_update"]
