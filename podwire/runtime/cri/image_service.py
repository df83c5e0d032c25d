"""The ImageService of CRI. Images come by import; there is no registry to pull from."""

import asyncio
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_methods import Handler, UnaryHandler
from podwire.protocols.grpc_status import InvalidArgument, NotFound
from podwire.runtime.cri.errors import translate_errors, uncancelled
from podwire.runtime.images import Image, Images


@dataclass(frozen=True, slots=True)
class ImageService:
    """Handlers by the calls' bare names."""

    images: Images
    clock: Clock

    def handlers(self) -> dict[str, Handler]:
        named: dict[str, UnaryHandler] = {
            "ListImages": self.list_images,
            "ImageStatus": self.image_status,
            "RemoveImage": uncancelled(self.remove_image),
            "PullImage": self.pull_image,
            "ImageFsInfo": self.image_fs_info,
        }
        return {name: translate_errors(each) for name, each in named.items()}

    async def list_images(self, request: pb.ListImagesRequest) -> pb.ListImagesResponse:
        found = await asyncio.to_thread(self.images.list, request.filter.image.image)
        return pb.ListImagesResponse(images=[message(each) for each in found])

    async def image_status(self, request: pb.ImageStatusRequest) -> pb.ImageStatusResponse:
        """An image that is not here is no error, but an answer without one."""
        found = await self._find(request.image)
        return pb.ImageStatusResponse(image=message(found) if found else None)

    async def remove_image(self, request: pb.RemoveImageRequest) -> pb.RemoveImageResponse:
        """Removes all names of the image; one that is not here is removed."""
        if not request.image.image:
            raise InvalidArgument("image.image: must be given")
        await asyncio.to_thread(self.images.remove, request.image.image)
        return pb.RemoveImageResponse()

    async def pull_image(self, request: pb.PullImageRequest) -> pb.PullImageResponse:
        """What is here already counts as pulled; anything else would have to come from a registry."""
        found = await self._find(request.image)
        if found is None:
            raise NotFound(
                f"image.image: {request.image.image!r} is not on this node, and podwire does not pull from registries; "
                "import it with `podwire image import FILE`"
            )
        return pb.PullImageResponse(image_ref=found.id)

    async def image_fs_info(self, _request: pb.ImageFsInfoRequest) -> pb.ImageFsInfoResponse:
        info = await asyncio.to_thread(self.images.fs_info)
        usage = pb.FilesystemUsage(timestamp=int(self.clock.wall() * 1e9))
        usage.fs_id.mountpoint = str(info.mountpoint)
        usage.used_bytes.value, usage.inodes_used.value = info.used_bytes, info.inodes_used
        return pb.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])

    async def _find(self, spec: pb.ImageSpec) -> Image | None:
        if not spec.image:
            raise InvalidArgument("image.image: must be given")
        return await asyncio.to_thread(self.images.status, spec.image)


def message(image: Image) -> pb.Image:
    """An image as kubelets and crictl see it."""
    found = pb.Image(
        id=image.id,
        repo_tags=list(image.names),
        repo_digests=list(image.digests),
        size=image.size,
        username=image.username,
        pinned=image.pinned,
        spec=pb.ImageSpec(image=image.id),
    )
    if image.uid is not None:
        found.uid.value = image.uid
    return found
