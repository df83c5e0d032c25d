"""Backups and restores between stores: nothing is lost, and resourceVersions never go backwards."""

import base64
import shutil
import uuid

import pytest

from podwire.apiserver.backup import Backup
from podwire.cluster.backup import at_rest
from podwire.protocols.backup import BackupDecoder, BadBackup, Entry, Header
from podwire.protocols.storage import Gone
from podwire.store import CannotOpen
from podwire.store.encryption import PLAIN, read_encryption_configuration
from podwire.store.encryption.providers import CannotDecrypt
from podwire.store.etcd import EtcdStore
from podwire.store.etcd import restoring as etcd
from podwire.store.etcd.layout import restoring_key
from podwire.store.snapshot import snapshot
from podwire.store.sqlite import SqliteStore
from podwire.store.sqlite import restoring as sqlite
from podwire.transports.clock import SystemClock
from tests.store.conftest import EtcdMember


@pytest.fixture(scope="module")
def shared_etcd(tmp_path_factory):
    """One for the tests of this module only: a restore compacts it."""
    member = EtcdMember(tmp_path_factory.mktemp("etcd"))
    member.start()
    member.wait()
    yield member
    member.kill()


async def fill(store) -> dict[str, bytes]:
    """Writes, changes and deletes; returns what is left."""
    for number in range(1200):  # more than a page
        await store.create(f"/registry/configmaps/default/m{number:04}", b"{}")
    item = await store.get("/registry/configmaps/default/m0007")
    await store.update(item.key, b'{"changed":true}', expected=item.revision)
    item = await store.get("/registry/configmaps/default/m0008")
    await store.delete(item.key, expected=item.revision)
    await store.create("/registry/secrets/default/token", b'{"data":"c2VjcmV0"}')
    return {item.key: item.value for item in (await store.list("/registry/")).items}


async def backup(store, encryption=PLAIN) -> list[Header | Entry]:
    decoder, records = BackupDecoder(), []
    async for chunk in Backup(store, SystemClock(), at_rest(encryption), "test").answer().chunks:
        records += decoder.feed(chunk)
    decoder.close()
    return records


async def contents(store) -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.list("/registry/")).items}


async def restored(kind, tmp_path, shared_etcd, state, encryption=PLAIN):
    """Restores into a new store of a kind, and opens it."""
    if kind == "sqlite":
        directory = tmp_path / uuid.uuid4().hex
        directory.mkdir()
        assert sqlite.restore(directory, state, encryption, replace=False) is None
        return await SqliteStore.open(directory, encryption=encryption)
    url = f"etcd://{shared_etcd.address}?prefix=/{uuid.uuid4().hex}"
    revision = await etcd.restore(url, state, encryption)
    store = await EtcdStore.open(url, encryption=encryption)
    assert store.revision == revision
    return store


@pytest.mark.parametrize("target", ["sqlite", "etcd"])
async def test_a_state_moves_to_another_store_and_revisions_go_on(store, target, tmp_path, shared_etcd):
    before = await fill(store)
    header, *entries = await backup(store)
    assert header.revision == store.revision
    state = snapshot(header, entries, PLAIN, bump=0)
    moved = await restored(target, tmp_path, shared_etcd, state)
    try:
        assert await contents(moved) == before
        assert moved.revision >= store.revision
        created = await moved.create("/registry/configmaps/default/new", b"{}")
        assert created.revision > store.revision
        changed = await moved.update(created.key, b"[]", expected=created.revision)
        assert (changed.created, changed.revision > created.revision) == (created.revision, True)
        assert (await moved.list("/registry/configmaps/", at=created.revision, limit=3)).revision == created.revision
        watch = moved.watch("/registry/", after=changed.revision)
        deletion = await moved.delete(changed.key, expected=changed.revision)
        [change] = await watch.next()
        assert (change.revision, change.key, change.item) == (deletion, created.key, None)
    finally:
        await moved.close()


@pytest.mark.parametrize("target", ["sqlite", "etcd"])
async def test_watches_from_before_a_restore_end_with_gone(store, target, tmp_path, shared_etcd):
    await fill(store)
    header, *entries = await backup(store)
    moved = await restored(target, tmp_path, shared_etcd, snapshot(header, entries, PLAIN, bump=1_000_000_000))
    try:
        assert moved.revision >= header.revision + 1_000_000_000
        with pytest.raises(Gone):
            await moved.watch("/registry/", after=header.revision + 5).next()
    finally:
        await moved.close()


async def test_a_backup_is_of_one_revision_while_others_write(store):
    await fill(store)
    decoder, records = BackupDecoder(), []
    async for chunk in Backup(store, SystemClock(), at_rest(PLAIN), "test").answer().chunks:
        records += decoder.feed(chunk)
        await store.create(f"/registry/configmaps/default/z{uuid.uuid4().hex}", b"{}")
    header, *entries = records
    keys = {entry.key for entry in entries}
    assert all(entry.revision <= header.revision for entry in entries)
    assert not any(key.startswith(b"/registry/configmaps/default/z") for key in keys)


@pytest.fixture
def encryption(tmp_path):
    secret = base64.b64encode(bytes(range(32))).decode()
    path = tmp_path / "encryption.yaml"
    path.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n"
        f"  providers:\n  - aesgcm:\n      keys:\n      - {{name: one, secret: {secret}}}\n  - identity: {{}}\n"
    )
    return read_encryption_configuration(path, lambda _resource: ("/registry/secrets/",))


@pytest.mark.parametrize("target", ["sqlite", "etcd"])
async def test_encrypted_values_are_encrypted_in_a_backup(encryption, target, tmp_path, shared_etcd):
    source = await SqliteStore.open(tmp_path, encryption=encryption)
    try:
        await source.create("/registry/secrets/default/token", b'{"data":"c2VjcmV0"}')
        header, *entries = await backup(source, encryption)
    finally:
        await source.close()
    assert entries[0].value.startswith(b"k8s:enc:aesgcm:v1:one:")
    with pytest.raises(CannotDecrypt, match="no key of the encryption configuration"):
        snapshot(header, entries, PLAIN, bump=0)
    moved = await restored(target, tmp_path, shared_etcd, snapshot(header, entries, encryption, bump=0), encryption)
    try:
        assert await contents(moved) == {"/registry/secrets/default/token": b'{"data":"c2VjcmV0"}'}
    finally:
        await moved.close()


HEADER = Header(10, 0.0, "etcd")


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        pytest.param([Entry(b"/other/a", b"", 1, 1)], "is not below /registry/", id="another root"),
        pytest.param([Entry(b"/registry/a", b"", 1, 1)] * 2, "is there twice", id="a key twice"),
        pytest.param([Entry(b"/registry/a", b"", 11, 1)], "do not fit 10", id="from the future"),
        pytest.param([Entry(b"/registry/a", b"", 2, 3)], "do not fit 10", id="changed before it was created"),
    ],
)
def test_a_backup_that_contradicts_itself_is_refused(entries, reason):
    with pytest.raises(BadBackup, match=reason):
        snapshot(HEADER, entries, PLAIN, bump=0)


def test_keys_of_one_transaction_get_revisions_of_their_own():
    entries = [Entry(f"/registry/{name}".encode(), b"", 9, 9) for name in "abc"]
    state = snapshot(HEADER, entries, PLAIN, bump=5)
    assert [(item.key, item.revision) for item in state.items] == [
        ("/registry/a", 9),
        ("/registry/b", 11),
        ("/registry/c", 12),
    ]
    assert state.revision == 17


STATE = snapshot(HEADER, [Entry(b"/registry/pods/default/web", b"{}", 3, 2)], PLAIN, bump=0)


async def test_a_database_is_replaced_only_when_asked_and_is_kept(tmp_path):
    store = await SqliteStore.open(tmp_path)
    await store.create("/registry/pods/default/old", b"{}")
    with pytest.raises(CannotOpen, match="in use by another process"):
        sqlite.restore(tmp_path, STATE, PLAIN, replace=True)
    await store.close()
    with pytest.raises(CannotOpen, match="exists; with --replace"):
        sqlite.restore(tmp_path, STATE, PLAIN, replace=False)
    (tmp_path / "restore.1").mkdir()  # a restore that was killed
    replaced = sqlite.restore(tmp_path, STATE, PLAIN, replace=True)
    for directory, key in ((tmp_path, "/registry/pods/default/web"), (replaced, "/registry/pods/default/old")):
        opened = await SqliteStore.open(directory)
        assert list(await contents(opened)) == [key]
        await opened.close()
    assert not (tmp_path / "restore.1").exists()
    shutil.rmtree(replaced)


async def test_a_prefix_of_etcd_with_keys_is_not_overwritten(shared_etcd):
    url = f"etcd://{shared_etcd.address}?prefix=/{uuid.uuid4().hex}"
    store = await EtcdStore.open(url)
    await store.create("/registry/pods/default/old", b"{}")
    await store.close()
    with pytest.raises(CannotOpen, match="etcd has 1 keys below"):
        await etcd.restore(url, STATE, PLAIN)


async def test_a_restore_into_etcd_that_was_killed_is_refused_and_repeated(shared_etcd, monkeypatch):
    url = f"etcd://{shared_etcd.address}?prefix=/{uuid.uuid4().hex}"

    async def killed(*_arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(etcd, "_put", killed)
        with pytest.raises(KeyboardInterrupt):
            await etcd.restore(url, STATE, PLAIN)
    with pytest.raises(CannotOpen, match="did not finish: run `podwire restore` again"):
        await EtcdStore.open(url)
    await etcd.restore(url, STATE, PLAIN)
    store = await EtcdStore.open(url)
    assert list(await contents(store)) == ["/registry/pods/default/web"]
    assert store.revision >= STATE.revision
    await store.close()


def test_marks_of_prefixes_do_not_collide():
    assert restoring_key("/a") != restoring_key("/b")
