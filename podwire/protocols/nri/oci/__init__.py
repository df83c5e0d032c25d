"""Between NRI and the OCI runtime specification: what a plugin is shown of a container's config.json, and what the
merged adjustment makes of it.
"""

from podwire.protocols.nri.oci.adjusted import adjusted_spec
from podwire.protocols.nri.oci.container import container_of
from podwire.protocols.nri.oci.resources import resources_from, resources_to

__all__ = ["adjusted_spec", "container_of", "resources_from", "resources_to"]
