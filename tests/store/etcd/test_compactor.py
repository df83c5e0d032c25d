import pytest

from podwire.protocols.storage import Gone
from podwire.store.etcd import EtcdStore
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.compactor import KEY, Tick, advance

WEB = "/registry/pods/default/web"


async def test_several_compactors_share_one_clock(start_etcd):
    """As Kubernetes does it: one advances the clock and compacts to where it was an interval ago, the others follow."""
    store = await EtcdStore.open(f"etcd://{start_etcd().address}")
    client = store._client
    first = await store.create(WEB, b"1")
    mine = await advance(client, Tick())
    assert mine.version == 1
    yours = await advance(client, Tick())
    assert yours.version == 1
    second = await store.update(WEB, b"2", expected=first.revision)
    mine = await advance(client, mine)
    assert mine.version == 2
    with pytest.raises(Gone):
        await store.list("/registry/pods/", at=first.revision)
    assert (await store.list("/registry/pods/", at=second.revision)).items == (second,)
    assert (await advance(client, yours)).version == 2
    kv = (await client.range(pb.RangeRequest(key=KEY))).kvs[0]
    assert int(kv.value) > first.revision
    await store.close()
