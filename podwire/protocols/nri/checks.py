"""What no answer may say, whoever gives it."""

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment


def check_update(update: pb.ContainerUpdate, field: str) -> None:
    """Raises BadAdjustment."""
    if not update.container_id:
        raise BadAdjustment(f"{field}.container_id", "no container is named")


def check_adjustment(adjust: pb.ContainerAdjustment) -> None:
    """Raises BadAdjustment."""
