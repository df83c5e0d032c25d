"""What holds for all tests."""

import os

from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine's other work than about ours; a test that hangs is ended by
# pytest-timeout. Under `make soak` there are twenty times as many examples.
settings.register_profile("sample", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("sample"), max_examples=2000)
settings.load_profile("soak" if os.environ.get("PODWIRE_SOAK") else "sample")
