"""Builds images of this machine from Containerfiles: wires the builder to the OCI runtime and a mount namespace."""

from podwire.cluster.runtime import NoRuntime, find_oci_runtime, must_cover_unified
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.proc.mount_namespaces import unshare_mounts
from podwire.runtime.builder import Builder, BuildSandbox, StepFailed
from podwire.runtime.builder.build import Report
from podwire.runtime.images import Images
from podwire.shim import ShimMissing, find_shim


def make_builder(images: Images, report: Report) -> Builder:
    """Returns a builder. The calling thread gets a mount namespace of its own, for good, which hides its mounts."""
    unshare_mounts()
    KernelMounts().set_propagation("/", "rslave")

    def sandbox() -> BuildSandbox:
        try:
            runtime = find_oci_runtime()
            return BuildSandbox(shim=find_shim(), runtime=runtime, cover_unified=must_cover_unified(runtime))
        except (NoRuntime, ShimMissing) as error:
            raise StepFailed(str(error)) from error

    return Builder(images, sandbox, report)
