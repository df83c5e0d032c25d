"""What class and claim say of an interface, in the driver's own words: read strictly, merged, judged."""

from podwire.dradriver.parameters.deciding import effective
from podwire.dradriver.parameters.schema import API_VERSION, KIND
from podwire.dradriver.parameters.together import together

__all__ = ["API_VERSION", "KIND", "effective", "together"]
