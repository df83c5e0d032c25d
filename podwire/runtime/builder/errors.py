"""Errors of builds."""

from podwire.runtime.images.errors import ImageError


class StepFailed(Exception):
    """A step cannot be done; says why. The caller adds the file and the line."""


class BuildFailed(ImageError):
    """A build has failed: the Containerfile's name, the line and the reason."""
