"""Encrypted stores: nothing of a secret is on the disk or in etcd, keys rotate, and a wrong key is reported."""

import pytest

from podwire.protocols.storage import StorageError
from podwire.store import CannotOpen
from podwire.store.encryption import PLAIN, Encryption
from podwire.store.encryption.providers import AesGcm, Identity, Rule, SecretBox
from podwire.store.etcd import EtcdStore
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.sqlite import SqliteStore

SECRETS = "/registry/secrets/default/"
CANARY = b"c4n4ry-s3cr3t"
OLD, NEW = b"o" * 32, b"n" * 32


def encryption(*providers) -> Encryption:
    return Encryption([Rule(("/registry/secrets/",), providers)])


def on_disk(directory) -> bytes:
    return b"".join(path.read_bytes() for path in directory.iterdir() if path.is_file())


async def test_a_secret_is_not_in_the_files_and_is_read_again(tmp_path):
    store = await SqliteStore.open(tmp_path, encryption=encryption(AesGcm({"old": OLD})))
    item = await store.create(f"{SECRETS}a", CANARY)
    item = await store.update(f"{SECRETS}a", CANARY + b"2", expected=item.revision)
    await store.create("/registry/pods/default/p", b"plain")
    assert (await store.get(f"{SECRETS}a")).value == CANARY + b"2"
    assert CANARY not in on_disk(tmp_path)
    await store.close()
    assert CANARY not in on_disk(tmp_path)
    assert b"plain" in on_disk(tmp_path)
    store = await SqliteStore.open(tmp_path, encryption=encryption(AesGcm({"old": OLD})))
    assert await store.get(f"{SECRETS}a") == item
    await store.close()


async def test_plain_text_is_encrypted_when_the_store_is_opened_and_leaves_no_trace(tmp_path):
    store = await SqliteStore.open(tmp_path)
    items = [await store.create(f"{SECRETS}{number}", CANARY * 1000) for number in range(20)]
    await store.close()
    assert CANARY in on_disk(tmp_path)
    store = await SqliteStore.open(tmp_path, encryption=encryption(AesGcm({"old": OLD}), Identity()))
    assert list((await store.list(SECRETS)).items) == sorted(items, key=lambda item: item.key)
    assert CANARY not in on_disk(tmp_path)
    await store.close()
    assert CANARY not in on_disk(tmp_path)


@pytest.mark.parametrize("provider", [AesGcm, SecretBox])
async def test_after_a_rotation_the_old_key_can_be_removed(tmp_path, provider):
    store = await SqliteStore.open(tmp_path, encryption=encryption(provider({"old": OLD})))
    item = await store.create(f"{SECRETS}a", CANARY)
    await store.close()
    both = encryption(provider({"new": NEW, "old": OLD}))
    await (await SqliteStore.open(tmp_path, encryption=both)).close()
    store = await SqliteStore.open(tmp_path, encryption=encryption(provider({"new": NEW})))
    assert await store.get(f"{SECRETS}a") == item
    await store.close()


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (encryption(AesGcm({"new": NEW})), "no key of the encryption configuration is k8s:enc:aesgcm:v1:old:"),
        (encryption(AesGcm({"old": NEW})), "k8s:enc:aesgcm:v1:old: has another secret, or the value is damaged"),
        (PLAIN, "no key of the encryption configuration is k8s:enc:aesgcm:v1:old:"),
    ],
)
async def test_a_store_whose_secrets_cannot_be_decrypted_is_not_opened(tmp_path, reader, words):
    store = await SqliteStore.open(tmp_path, encryption=encryption(AesGcm({"old": OLD})))
    await store.create(f"{SECRETS}a", CANARY)
    await store.close()
    with pytest.raises(CannotOpen) as raised:
        await SqliteStore.open(tmp_path, encryption=reader)
    assert f"{SECRETS}a cannot be decrypted" in str(raised.value)
    assert words in str(raised.value)
    store = await SqliteStore.open(tmp_path, encryption=encryption(AesGcm({"old": OLD})))
    assert (await store.get(f"{SECRETS}a")).value == CANARY
    await store.close()


async def test_etcd_has_no_plain_text_and_watches_and_lists_do(shared_etcd, take):
    url = f"etcd://{shared_etcd.address}?prefix=/encrypted"
    store = await EtcdStore.open(url, encryption=encryption(AesGcm({"old": OLD}), Identity()))
    watch = store.watch(SECRETS, after=store.revision)
    item = await store.create(f"{SECRETS}a", CANARY)
    item = await store.update(f"{SECRETS}a", CANARY + b"2", expected=item.revision)
    assert [change.item.value for change in await take(watch, 2)] == [CANARY, CANARY + b"2"]
    assert await store.get(f"{SECRETS}a") == item
    assert (await store.list(SECRETS)).items == (item,)
    raw = await store._client.range(pb.RangeRequest(key=b"/encrypted/secrets/default/a"))
    assert raw.kvs[0].value.startswith(b"k8s:enc:aesgcm:v1:old:")
    assert CANARY not in raw.kvs[0].value
    await store.close()

    rotated = await EtcdStore.open(url, encryption=encryption(AesGcm({"new": NEW, "old": OLD})))
    found = await rotated.get(f"{SECRETS}a")
    assert (found.value, found.stale) == (CANARY + b"2", True)
    await rotated.update(f"{SECRETS}a", found.value, expected=found.revision)
    assert (await rotated.get(f"{SECRETS}a")).stale is False
    await rotated.close()

    blind = await EtcdStore.open(url, encryption=encryption(AesGcm({"old": OLD})))
    with pytest.raises(StorageError, match="no key of the encryption configuration is k8s:enc:aesgcm:v1:new:"):
        await blind.get(f"{SECRETS}a")
    await blind.close()
