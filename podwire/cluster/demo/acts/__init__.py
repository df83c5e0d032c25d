"""The acts of the demo, one for each flow."""

from collections.abc import Sequence

from podwire.cluster.demo.acts import claim, device, life, policy, start
from podwire.cluster.demo.acts.act import Act, DemoContext

__all__ = ["Act", "DemoContext", "acts"]


def acts(context: DemoContext) -> Sequence[Act]:
    """Returns all acts in order."""
    return [module.act(context) for module in (start, life, policy, device, claim)]
