"""The runtime's chair of NRI: lets plugins in, tells them what happens, and merges what they want changed."""

from podwire.nri.adaptation.adaptation import Adaptation
from podwire.nri.adaptation.creating import Adjusted
from podwire.nri.adaptation.ports import ContainerUpdater
from podwire.nri.adaptation.settings import Settings

__all__ = ["Adaptation", "Adjusted", "ContainerUpdater", "Settings"]
