"""The ImageService of CRI."""

import asyncio
import base64
import binascii
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.distribution import Login
from podwire.protocols.grpc_methods import Handler, UnaryHandler
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.cri.errors import translate_errors
from podwire.runtime.images import Image, Images
from podwire.runtime.images.pull import Puller


@dataclass(frozen=True, slots=True)
class ImageService:
    """Handlers by the calls' bare names."""

    images: Images
    puller: Puller
    clock: Clock

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, UnaryHandler] = {
            "ListImages": self.list_images,
            "ImageStatus": self.image_status,
            "RemoveImage": self.remove_image,
            "PullImage": self.pull_image,
            "ImageFsInfo": self.image_fs_info,
        }
        return {name: translate_errors(handler) for name, handler in handlers.items()}

    async def list_images(self, request: pb.ListImagesRequest) -> pb.ListImagesResponse:
        images = await asyncio.to_thread(self.images.list, request.filter.image.image)
        return pb.ListImagesResponse(images=[image_message(image) for image in images])

    async def image_status(self, request: pb.ImageStatusRequest) -> pb.ImageStatusResponse:
        """Returns an empty response for an image that does not exist, as CRI requires."""
        image = await self._find(request.image)
        return pb.ImageStatusResponse(image=image_message(image) if image else None)

    async def remove_image(self, request: pb.RemoveImageRequest) -> pb.RemoveImageResponse:
        """Removes all names of the image; idempotent."""
        if not request.image.image:
            raise InvalidArgument("image.image: must be given")
        await asyncio.to_thread(self.images.remove, request.image.image)
        return pb.RemoveImageResponse()

    async def pull_image(self, request: pb.PullImageRequest) -> pb.PullImageResponse:
        """Asks the registry anew each time; an image that was imported here is returned as it is."""
        if not request.image.image:
            raise InvalidArgument("image.image: must be given")
        image = await self.puller.pull(request.image.image, _login(request.auth))
        return pb.PullImageResponse(image_ref=image.id)

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


def _login(auth: pb.AuthConfig) -> Login:
    """Returns the credentials of a request. `auth` is base64 of user:password, as Docker's files have it."""
    username, password = auth.username, auth.password
    if auth.auth:
        try:
            username, colon, password = base64.b64decode(auth.auth, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise InvalidArgument("auth.auth: must be base64 of user:password")
        password = password.rstrip("\0")
    return Login(username, password, auth.identity_token, auth.registry_token)


def image_message(image: Image) -> pb.Image:
    """Returns an image as kubelets and crictl see it."""
    message = pb.Image(
        id=image.id,
        repo_tags=list(image.names),
        repo_digests=list(image.digests),
        size=image.size,
        username=image.username,
        pinned=image.pinned,
        spec=pb.ImageSpec(image=image.id),
    )
    if image.uid is not None:
        message.uid.value = image.uid
    return message
