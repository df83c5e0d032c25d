"""All acts, in their order."""

from collections.abc import Sequence

from podwire.cluster.demo.acts import claim, device, life, policy, start
from podwire.cluster.demo.acts.act import Act, Place


def acts(place: Place) -> Sequence[Act]:
    return [module.act(place) for module in (start, life, policy, device, claim)]
