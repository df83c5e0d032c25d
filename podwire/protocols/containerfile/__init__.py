"""Containerfiles (Dockerfiles): text to steps. Pure."""

from podwire.protocols.containerfile.ignore import IgnorePatterns
from podwire.protocols.containerfile.steps import (
    SCRATCH,
    Copy,
    MakeDirectory,
    Plan,
    Run,
    Setting,
    Step,
    plan_build,
    source_image,
)
from podwire.protocols.containerfile.syntax import BadContainerfile, Instruction, parse
from podwire.protocols.containerfile.words import Platform

__all__ = [
    "SCRATCH",
    "BadContainerfile",
    "Copy",
    "IgnorePatterns",
    "Instruction",
    "MakeDirectory",
    "Plan",
    "Platform",
    "Run",
    "Setting",
    "Step",
    "parse",
    "plan_build",
    "source_image",
]
