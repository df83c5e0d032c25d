"""Validates plugin responses before anything of them is applied; errors name the path of the field."""

from podwire.protocols.nri.checks.adjustment import check_adjustment
from podwire.protocols.nri.checks.resources import check_update

__all__ = ["check_adjustment", "check_update"]
