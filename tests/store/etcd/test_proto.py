import subprocess
import sys
from pathlib import Path

import pytest

import podwire

ROOT = Path(podwire.__file__).parents[1]
PROTO = "podwire/store/etcd/etcd.proto"


@pytest.mark.parametrize("name", ["etcd_pb2.py", "etcd_pb2.pyi"])
def test_compiled_protobuf_files_are_up_to_date(tmp_path, name):
    command = ["-m", "grpc_tools.protoc", f"-I{ROOT}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", PROTO]
    subprocess.run([sys.executable, *command], check=True)
    fresh = (tmp_path / PROTO).with_name(name).read_text()
    assert (ROOT / PROTO).with_name(name).read_text() == fresh, f"{name} is stale: see the head of etcd.proto"
