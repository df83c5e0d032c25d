"""A collector of OpenTelemetry beside a cluster, which keeps all that it gets as files."""

import subprocess
import sys
from pathlib import Path

from podwire.protocols.otlp import otlp_pb2 as pb

SERVER = """
import http.server, pathlib, sys
folder = pathlib.Path(sys.argv[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        made = folder / f"{len(list(folder.iterdir())):06}.new"
        made.write_bytes(body)
        made.rename(made.with_suffix(".otlp"))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Telemetry:
    """A collector of OpenTelemetry beside a cluster."""

    def __init__(self, cluster, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        words = cluster.space.command(sys.executable, "-c", SERVER, folder)
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self._child.stdout.readline())}"

    def spans(self, trace: str) -> list[tuple[str, pb.Span]]:
        """Of one trace, each with its service."""
        found = []
        for path in sorted(self.folder.glob("*.otlp")):
            for resource in pb.ExportTraceServiceRequest.FromString(path.read_bytes()).resource_spans:
                service = next(
                    one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
                )
                own = [span for scope in resource.scope_spans for span in scope.spans]
                found += [(service, span) for span in own if span.trace_id.hex() == trace]
        return found

    def close(self) -> None:
        """Again is fine."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.communicate()
