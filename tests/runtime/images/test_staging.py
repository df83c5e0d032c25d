"""The staging area of an image store that several processes share."""

import threading

from podwire.runtime.images.staging import StoreDirectory


def test_sweep_tolerates_stages_that_end_meanwhile(tmp_path):
    store, other = StoreDirectory(tmp_path), StoreDirectory(tmp_path)
    ended = threading.Event()

    def work_in_stages() -> None:
        while not ended.is_set():
            with other.stage():
                pass

    worker = threading.Thread(target=work_in_stages)
    worker.start()
    try:
        for _ in range(300):
            with store.exclusive():
                store.sweep()
    finally:
        ended.set()
        worker.join()
    assert list((tmp_path / "staging").iterdir()) == []
