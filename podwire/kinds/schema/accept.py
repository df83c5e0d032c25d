"""The Accept header: which forms a client takes, the dearest first."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Clause:
    """One media type with its parameters."""

    media: str
    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def quality(self) -> float:
        try:
            return float(self.parameters.get("q", "1"))
        except ValueError:
            return 1.0

    def takes(self, media: str) -> bool:
        """Whether the media type is this one or one that its stars stand for."""
        return self.media in (media, f"{media.partition('/')[0]}/*", "*/*")


def clauses(accept: str) -> list[Clause]:
    """Those with a higher q first, otherwise in order; without the refused ones. No header takes everything."""
    found = [_clause(text) for text in accept.split(",") if text.strip()]
    wanted = [each for each in found if each.quality > 0]
    return sorted(wanted, key=lambda each: -each.quality) if found else [Clause("*/*")]


def _clause(text: str) -> Clause:
    media, *rest = (part.strip() for part in text.split(";"))
    pairs = (part.partition("=") for part in rest if part)
    return Clause(media.lower(), {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs})
