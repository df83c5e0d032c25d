"""The program `podwire`: an early Ctrl-C ends it without a traceback, also while modules are imported.

This module must stay small: until its second statement ran, Python's own handler is in effect.
"""

import signal

_PYTHONS_OWN = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else SIGINT is ignored, as by nohup
if _PYTHONS_OWN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Runs the command line; from here on KeyboardInterrupt is handled."""
    from podwire.cli.main import main as run  # noqa: PLC0415 - see above

    try:
        if _PYTHONS_OWN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        if _PYTHONS_OWN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
