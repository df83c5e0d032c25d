import pytest

from podwire.store import BadUrl, CannotOpen, MemoryStore, open_store
from podwire.store.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("url", "kind"), [("memory://", MemoryStore), ("sqlite://", SqliteStore), (None, SqliteStore), ("", SqliteStore)]
)
async def test_a_url_chooses_the_store(tmp_path, url, kind):
    store = await open_store(url, tmp_path)
    assert type(store) is kind
    await store.close()


async def test_an_etcd_url_opens_an_etcd(tmp_path, shared_etcd):
    store = await open_store(f"etcd://{shared_etcd.address}?prefix=/chosen", tmp_path)
    item = await store.create("/registry/pods/default/web", b"")
    assert await store.get(item.key) == item
    await store.close()


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("postgres://x", "the store must be memory://, sqlite:// or etcd://HOST:PORT"),
        ("nothing", "the store must be memory://"),
        ("sqlite:///var/lib/x", "nothing may follow sqlite://"),
        ("memory://x", "nothing may follow memory://"),
        ("etcd://", "is not HOST:PORT"),
    ],
)
async def test_a_bad_url_is_refused_with_the_reason(tmp_path, url, wrong):
    with pytest.raises(BadUrl, match=wrong):
        await open_store(url, tmp_path)


async def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CannotOpen, match=f"{tmp_path}/none: "):
        await open_store(None, tmp_path / "none")
