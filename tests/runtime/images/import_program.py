"""Imports archives and removes an image in a process that may be killed: `python import_program.py STORE ARCHIVE…`."""

import sys
from pathlib import Path

from podwire.runtime.images import Images
from podwire.runtime.images.errors import StoreFull

store, *archives = map(Path, sys.argv[1:])
images = Images(store)
try:
    for archive in archives:
        for image in images.import_archive(archive):
            sys.stdout.write(f"{image.id}\n")
    images.remove("example.test/removed:1")
except StoreFull as error:
    sys.stderr.write(f"full: {error}\n")
    sys.exit(3)
