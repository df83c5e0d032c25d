"""The runtime side of NRI: registers plugins, calls them for every event, merges what they adjust."""

from podwire.nri.adaptation.adaptation import Adaptation, Adjusted
from podwire.nri.adaptation.registration import ContainerUpdater
from podwire.nri.adaptation.settings import Settings

__all__ = ["Adaptation", "Adjusted", "ContainerUpdater", "Settings"]
