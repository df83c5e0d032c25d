"""Prints the bill of materials of the wheels: a CycloneDX document of the packages in runtime.lock.

    python requirements/sbom.py VERSION SECONDS

The packages are those that `scripts/setup --run` installs. The lock has hashes of all files of a package, for every
platform. The time is given (SOURCE_DATE_EPOCH), so that the same tree has the same document.
"""  # noqa: INP001 - a program, not a package

import json
import re
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LOCK = Path(__file__).with_name("runtime.lock")
PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\\n]+?))?\s*\\?$", re.MULTILINE)


def component(name: str, version: str, marker: str, hashes: list[str]) -> dict[str, Any]:
    reference = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    part: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
        "scope": "optional" if marker else "required",
        # A component's own hashes are of one file; a lock has those of every platform's.
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"urn:sha256:{content}",
                "hashes": [{"alg": "SHA-256", "content": content}],
            }
            for content in hashes
        ],
    }
    if marker:
        part["properties"] = [{"name": "podwire:marker", "value": marker}]
    return part


def components(lock: str) -> list[dict[str, Any]]:
    """The packages of a lock in its order, which is alphabetical."""
    starts = list(PACKAGE.finditer(lock))
    ends = [start.start() for start in starts[1:]] + [len(lock)]
    return [
        component(
            start[1], start[2], start[3] or "", re.findall(r"--hash=sha256:([0-9a-f]{64})", lock[start.end() : end])
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def bill(lock: str, version: str, seconds: int) -> dict[str, Any]:
    parts = components(lock)
    own = f"pkg:pypi/podwire@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{own}#{seconds}#{lock}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "podwire",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": parts,
    }


if __name__ == "__main__":
    print(json.dumps(bill(LOCK.read_text(encoding="utf-8"), sys.argv[1], int(sys.argv[2])), indent=2))  # noqa: T201 - its output
