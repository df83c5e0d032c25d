"""Builds images from Containerfiles: copies files, runs commands, packs what changed into layers."""

from podwire.runtime.builder.build import Builder, BuildRequest
from podwire.runtime.builder.context import Context
from podwire.runtime.builder.errors import BuildFailed, StepFailed
from podwire.runtime.builder.sandbox import BuildSandbox

__all__ = ["BuildFailed", "BuildRequest", "BuildSandbox", "Builder", "Context", "StepFailed"]
