"""`podwire hollow`: what it refuses."""

import pytest


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--nodes", "0"), "argument --nodes: must be at least 1"),
        (("--nodes", "many"), "argument --nodes: 'many' must be a number"),
        (("--nodes", "40000"), "--first and --nodes: at most 32768 nodes have addresses"),
        (("--nodes", "1", "--max-pods", "300"), "--max-pods: at most 254 pods of a node have addresses"),
        (("--nodes", "1", "--node-prefix", "Node"), "must be the beginning of a node's name"),
        (("--nodes", "1", "--device", "gpu=8"), "'gpu=8' must be RESOURCE=N, such as example.com/gpu=8"),
        (("--nodes", "1", "--dra-device", "gpu.example.com=129"), "with 1 to 128 devices"),
        (("--nodes", "1", "--memory", "lots"), "argument --memory"),
        (("--nodes", "1"), "any: No such file or directory"),
    ],
)
def test_a_wrong_flag_is_named(podwire, flags, text):
    done = podwire("hollow", "--kubeconfig", "any", *flags)
    assert done.returncode != 0
    assert text in done.stderr
    assert "Traceback" not in done.stderr
