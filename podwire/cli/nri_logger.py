"""`podwire nri logger`: runs the plugin that logs everything."""

import argparse

from podwire.nri.program import add_flags, run_program
from podwire.nriplugins.logger import Logger


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_program(Logger(), arguments)
