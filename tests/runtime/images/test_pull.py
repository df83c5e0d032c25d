"""Pulls from registries on loopback: what succeeds, what is refused, and that a failure leaves nothing."""

import asyncio
import contextlib
import gc
import json
import os
import re

import pytest

from podwire.cluster.registries import LazyHttp, hosts_finder
from podwire.protocols.distribution import Host, Login
from podwire.runtime.images import Images
from podwire.runtime.images.errors import PullFailed
from podwire.runtime.images.limits import Limits
from podwire.runtime.images.pull import Puller
from podwire.runtime.images.registry import PullLimits
from podwire.transports.registry_http import open_client
from tests.eventually import eventually_async
from tests.runtime.images.fake_registry import GRANTED, INDEX, MANIFEST, FakeRegistry, basic

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other owners")

QUICK = PullLimits(pause=0.01, longest_pause=0.02, attempts=4)
BEARER = 'Bearer realm="http://HOST/token",service="reg",scope="repository:test/app:pull"'


@pytest.fixture
async def registry():
    async with FakeRegistry().running() as registry:
        yield registry


@pytest.fixture
async def http():
    async with open_client(silence=2.0) as client:
        yield client


@pytest.fixture
def puller(images, http, tmp_path):
    puller = Puller(images, http, hosts_finder(tmp_path / "certs.d"), pulling=QUICK)
    yield puller
    puller.close()


@pytest.fixture
def made(oci):
    low = oci.tar_of(oci.entry("etc/motd", b"low"), oci.entry("data", os.urandom(200_000)))
    high = oci.tar_of(oci.entry("etc/motd", b"high"))
    return oci.Made(low, high, name="", Cmd=["run"])


def contents(images: Images) -> list[str]:
    """Everything in the store but its own directories."""
    root = images.fs_info().mountpoint
    return sorted(
        str(path) for path in root.rglob("*") if path.name != "lock" and path.parent != root and path.name != "sha256"
    )


async def test_a_pulled_image_has_its_tag_its_digest_and_its_layers(registry, puller, images, made, oci, merged):
    registry.serve_image(made)
    image = await puller.pull(f"{registry.host}/test/app:1")
    assert image.id == oci.digest(made.config_blob)
    assert image.names == (f"{registry.host}/test/app:1",)
    assert image.digests == (f"{registry.host}/test/app@{oci.digest(made.manifest_blob)}",)
    assert merged(images.rootfs_layers(image), "cat etc/motd") == "high"


async def test_a_second_pull_reads_no_layer(registry, puller, made):
    registry.serve_image(made)
    await puller.pull(f"{registry.host}/test/app:1")
    registry.asked.clear()
    await puller.pull(f"{registry.host}/test/app:1")
    assert [asked.split("/")[-2] for asked in registry.asked] == ["manifests", "blobs"]  # the tag's, and the config


async def test_a_tag_that_moved_means_the_new_image(registry, puller, images, made, oci):
    registry.serve_image(made)
    before = await puller.pull(f"{registry.host}/test/app:1")
    other = oci.Made(made.plain[0], name="", Cmd=["other"])
    registry.serve_image(other)
    after = await puller.pull(f"{registry.host}/test/app:1")
    assert before.id != after.id == images.status(f"{registry.host}/test/app:1").id


async def test_an_image_is_pulled_by_its_digest(registry, puller, made, oci):
    registry.serve_image(made)
    name = f"{registry.host}/test/app@{oci.digest(made.manifest_blob)}"
    image = await puller.pull(name)
    assert (image.names, image.digests) == ((), (name,))


async def test_of_an_index_the_row_for_this_machine_is_pulled(registry, puller, images, made, oci):
    registry.serve_image(made)
    architecture = images.machine.architecture
    rows = [
        {**made.row, "digest": oci.digest(b"windows"), "platform": {"os": "windows", "architecture": architecture}},
        {**made.row, "platform": {"os": "linux", "architecture": architecture}},
    ]
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": rows}).encode()
    registry.manifests["multi"] = (INDEX, index)
    image = await puller.pull(f"{registry.host}/test/app:multi")
    assert image.id == oci.digest(made.config_blob)
    assert f"{registry.host}/test/app@{oci.digest(index)}" in image.digests


async def test_an_index_without_this_machine_says_what_it_has(registry, puller, made):
    rows = [{**made.row, "platform": {"os": "plan9", "architecture": "mips"}}]
    registry.manifests["multi"] = (INDEX, json.dumps({"schemaVersion": 2, "manifests": rows}).encode())
    with pytest.raises(PullFailed, match=r"nothing for linux/\w+ in the index; it has plan9/mips"):
        await puller.pull(f"{registry.host}/test/app:multi")


async def test_zstd_layers_are_unpacked(registry, puller, images, oci, merged):
    from backports import zstd

    plain = oci.tar_of(oci.entry("etc/motd", b"zstd"))
    made = oci.Made(plain, name="", packed=False)
    packed = zstd.compress(plain)
    made.layers = [packed]
    made.manifest["layers"] = [oci.described(packed, "application/vnd.oci.image.layer.v1.tar+zstd")]
    registry.serve_image(made)
    image = await puller.pull(f"{registry.host}/test/app:1")
    assert merged(images.rootfs_layers(image), "cat etc/motd") == "zstd"


async def test_a_cut_download_goes_on_where_it_ended(registry, puller, made):
    registry.serve_image(made)
    registry.cut_after = [0, 100, 1000, 70_000]
    await puller.pull(f"{registry.host}/test/app:1")
    assert not registry.cut_after


async def test_a_registry_without_ranges_sends_a_cut_layer_again(registry, puller, made):
    registry.serve_image(made)
    registry.cut_after, registry.ignores_range = [0, 100, 1000, 70_000], True
    await puller.pull(f"{registry.host}/test/app:1")


async def test_a_download_that_is_cut_after_its_last_byte_is_whole(registry, puller, made):
    registry.serve_image(made)
    registry.chunks = True
    await puller.pull(f"{registry.host}/test/app:1")
    assert len(registry.asked) == 1 + 1 + 2


async def test_other_bytes_in_a_download_that_is_cut_after_its_last_byte_are_named(registry, puller, made, oci):
    served = Served(registry, made, oci)
    served.layer(0, lambda data: data[:-1] + b"!")
    registry.chunks = True
    with pytest.raises(PullFailed, match="digest mismatch"):
        await puller.pull(f"{registry.host}/test/app:1")


async def test_a_failed_pull_leaves_no_exception_that_nobody_reads(registry, puller, made, oci, caplog):
    served = Served(registry, made, oci)
    registry.blobs.pop(served.digests[1])
    for _ in range(3):
        with pytest.raises(PullFailed, match="BLOB_UNKNOWN"):
            await puller.pull(f"{registry.host}/test/app:1")
    gc.collect()
    await asyncio.sleep(0)
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("type_", ["text/plain", "application/octet-stream", "application/json; charset=utf-8"])
async def test_type_of_a_server_for_files_says_nothing_and_the_manifest_decides(registry, puller, made, oci, type_):
    registry.serve_image(made)
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [made.row]}).encode()
    registry.manifests = {"1": (type_, index), made.row["digest"]: (type_, made.manifest_blob)}
    image = await puller.pull(f"{registry.host}/test/app:1")
    assert image.id == oci.digest(made.config_blob)


async def test_type_of_an_index_for_a_manifest_is_refused(registry, puller, made):
    registry.serve_image(made)
    registry.manifests["1"] = (INDEX, made.manifest_blob)
    with pytest.raises(PullFailed, match="does not match the content"):
        await puller.pull(f"{registry.host}/test/app:1")


async def test_busy_registries_are_asked_again(registry, puller, made):
    registry.serve_image(made)
    registry.statuses = [503, 429]
    await puller.pull(f"{registry.host}/test/app:1")
    assert registry.statuses == []


SPOILED = {
    "other bytes in a layer": ("digest mismatch", lambda served: served.layer(0, lambda data: data[:-1] + b"!")),
    "more bytes in a layer": ("has more than the", lambda served: served.layer(0, lambda data: data + b"x")),
    "fewer bytes in a layer": ("ended after", lambda served: served.layer(0, lambda data: data[:-9])),
    "a layer is missing": ("404: BLOB_UNKNOWN", lambda served: served.registry.blobs.pop(served.digests[1])),
    "another config": ("digest mismatch", lambda served: served.registry.blobs.update({served.config: b"{}"})),
    "a manifest that is not JSON": ("is invalid", lambda served: served.manifest(b"{no")),
    "a manifest without end": ("has more than 4194304 bytes", lambda served: served.manifest(b" " * (5 << 20))),
    "no such tag": ("404: MANIFEST_UNKNOWN: manifest unknown", lambda served: served.registry.manifests.clear()),
}


class Served:
    """An image at a registry, whose parts can be replaced by wrong ones."""

    def __init__(self, registry, made, oci) -> None:
        registry.serve_image(made)
        self.registry = registry
        self.digests = [oci.digest(layer) for layer in made.layers]
        self.config = oci.digest(made.config_blob)

    def layer(self, number, change) -> None:
        self.registry.blobs[self.digests[number]] = change(self.registry.blobs[self.digests[number]])

    def manifest(self, data) -> None:
        self.registry.manifests["1"] = (MANIFEST, data)


@pytest.mark.parametrize("spoiled", SPOILED)
async def test_what_is_wrong_is_named_and_leaves_nothing(registry, puller, images, made, oci, spoiled):
    reason, spoil = SPOILED[spoiled]
    spoil(Served(registry, made, oci))
    with pytest.raises(PullFailed, match=reason) as raised:
        await puller.pull(f"{registry.host}/test/app:1")
    assert str(raised.value).startswith(f"{registry.host}/test/app:1: ")
    assert contents(images) == []


async def test_a_host_that_sends_another_range_is_refused(registry, puller, images, made):
    registry.serve_image(made)
    registry.cut_after, registry.shifts_range = [10, 1000, 1000, 1000], 5
    with pytest.raises(PullFailed, match="another range"):
        await puller.pull(f"{registry.host}/test/app:1")
    assert contents(images) == []


async def test_a_host_that_is_not_there_is_named(puller):
    with pytest.raises(
        PullFailed, match=r"127\.0\.0\.1:9/test/app:1: 127\.0\.0\.1:9: cannot connect: Connection refused$"
    ):
        await puller.pull("127.0.0.1:9/test/app:1")


async def test_basic_credentials_are_sent_once_they_are_asked_for(registry, puller, made):
    registry.serve_image(made)
    registry.challenge, registry.accepts = 'Basic realm="r"', basic("ann", "secret")
    await puller.pull(f"{registry.host}/test/app:1", Login("ann", "secret"))
    assert registry.authorizations[0] == ""
    assert set(registry.authorizations[1:]) == {basic("ann", "secret")}


async def test_a_token_is_fetched_for_the_repository_with_the_password(registry, puller, made):
    registry.serve_image(made)
    registry.challenge, registry.accepts = BEARER, f"Bearer {GRANTED}"
    await puller.pull(f"{registry.host}/test/app:1", Login("ann", "secret"))
    [asked] = registry.token_requests
    assert asked == {"service": "reg", "scope": "repository:test/app:pull", "authorization": basic("ann", "secret")}


async def test_an_identity_token_is_exchanged_by_a_form(registry, puller, made):
    registry.serve_image(made)
    registry.challenge, registry.accepts = BEARER, f"Bearer {GRANTED}"
    await puller.pull(f"{registry.host}/test/app:1", Login(identity_token="me"))
    [asked] = registry.token_requests
    assert (asked["grant_type"], asked["refresh_token"], asked["authorization"]) == ("refresh_token", "me", "")


async def test_wrong_credentials_are_tried_once_and_not_shown(registry, puller, made):
    registry.serve_image(made)
    registry.challenge, registry.accepts = BEARER, "Bearer another"
    with pytest.raises(PullFailed, match="401") as raised:
        await puller.pull(f"{registry.host}/test/app:1", Login("ann", "secret"))
    assert raised.value.denied
    assert len(registry.asked) == 2
    assert "secret" not in str(raised.value)
    assert GRANTED not in str(raised.value)


async def test_a_redirect_to_another_host_gets_no_credentials(registry, puller, made):
    registry.serve_image(made)
    registry.challenge, registry.accepts = 'Basic realm="r"', basic("ann", "secret")
    async with FakeRegistry(blobs=registry.blobs).running() as other:
        registry.redirect = f"http://{other.host}"
        await puller.pull(f"{registry.host}/test/app:1", Login("ann", "secret"))
        assert other.asked
        assert set(other.authorizations) == {""}


@pytest.mark.parametrize(
    ("target", "reason"), [("ftp://x", "redirects to"), ("file:///etc", "redirects to"), ("", "more than 5 redirects")]
)
async def test_odd_redirects_are_refused(registry, puller, made, target, reason):
    registry.serve_image(made)
    registry.redirect = target or f"http://{registry.host}"
    with pytest.raises(PullFailed, match=reason):
        await puller.pull(f"{registry.host}/test/app:1")


async def test_mirrors_are_asked_first_without_credentials(registry, puller, made, tmp_path):
    registry.serve_image(made)
    async with FakeRegistry().running() as mirror:
        mirror.serve_image(made)
        folder = tmp_path / "certs.d" / f"127.0.0.1_{registry.port}_"
        folder.mkdir(parents=True)
        (folder / "hosts.toml").write_text(
            f'server = "http://{registry.host}"\n[host."http://{mirror.host}"]\ncapabilities = ["pull"]\n'
        )
        registry.challenge, registry.accepts = 'Basic realm="r"', basic("ann", "secret")
        await puller.pull(f"{registry.host}/test/app:1", Login("ann", "secret"))
        assert {asked.split("/")[-2] for asked in registry.asked} == {"manifests"}  # only the tag's meaning
        assert all(asked.endswith(f"?ns={registry.host}") for asked in mirror.asked)
        assert set(mirror.authorizations) == {""}


async def test_server_of_the_file_gets_the_login_whatever_its_name(registry, puller, made, tmp_path):
    registry.serve_image(made)
    registry.challenge, registry.accepts = 'Basic realm="r"', basic("ann", "secret")
    folder = tmp_path / "certs.d" / "reg.test"
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text(f'server = "http://{registry.host}"\n')
    await puller.pull("reg.test/test/app:1", Login("ann", "secret"))
    assert all(asked.endswith("?ns=reg.test") for asked in registry.asked)


async def test_without_the_mirror_the_registry_serves(registry, puller, made, tmp_path):
    registry.serve_image(made)
    folder = tmp_path / "certs.d" / "_default"
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text('[host."http://127.0.0.1:9"]\n')
    await puller.pull(f"{registry.host}/test/app:1")


async def test_a_wrong_hosts_file_is_named(puller, tmp_path):
    folder = tmp_path / "certs.d" / "reg.test"
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text('[host."https://m"]\nskip_verify = "yes"\n')
    with pytest.raises(PullFailed, match=r'hosts\.toml: host\."https://m"\.skip_verify: must be true or false'):
        await puller.pull("reg.test/app:1")


async def test_pulls_of_one_image_at_once_are_one(registry, puller, made):
    registry.serve_image(made)
    registry.delay = 0.2
    images = await asyncio.gather(*[puller.pull(f"{registry.host}/test/app:1") for _ in range(5)])
    assert len({image.id for image in images}) == 1
    assert len(registry.asked) == 1 + 1 + 2


async def test_a_shared_pull_ends_with_its_last_waiter(registry, puller, images, made):
    registry.serve_image(made)
    registry.delay = 30
    waiters = [asyncio.create_task(puller.pull(f"{registry.host}/test/app:1")) for _ in range(2)]
    await eventually_async(lambda: registry.in_flight > 0)
    waiters[0].cancel()
    await asyncio.wait(waiters[:1])
    assert not waiters[1].done()
    waiters[1].cancel()
    await asyncio.wait(waiters)
    assert all(waiter.cancelled() for waiter in waiters)
    assert contents(images) == []


async def test_layers_come_in_parallel_up_to_the_limit(registry, puller, oci):
    made = oci.Made(*[oci.tar_of(oci.entry(f"file{n}", b"x")) for n in range(6)], name="")
    registry.serve_image(made)
    registry.delay = 0.1
    await puller.pull(f"{registry.host}/test/app:1")
    assert registry.most_in_flight == QUICK.parallel


async def test_an_imported_name_is_not_asked_for(registry, puller, images, made, oci, tmp_path):
    made.annotations = {"io.containerd.image.name": f"{registry.host}/test/app:1"}
    [imported] = images.import_archive(oci.write_directory(tmp_path / "archive", made.files()))
    assert await puller.pull(f"{registry.host}/test/app:1") == imported
    assert registry.asked == []


async def test_progress_counts_what_has_to_come(registry, puller, made):
    registry.serve_image(made)
    seen = []
    await puller.pull(
        f"{registry.host}/test/app:1",
        progress=lambda transfer: seen.append((transfer.layers_done, transfer.bytes_done, transfer.bytes)),
    )
    size = sum(map(len, made.layers))
    assert seen[-1] == (2, size, size)


async def test_a_layer_bomb_is_refused(registry, http, tmp_path, oci):
    plain = oci.tar_of(oci.entry("zeros", bytes(4 << 20)))
    made = oci.Made(plain, name="")
    registry.serve_image(made)
    images = Images(tmp_path / "small", limits=Limits(ratio_from=1 << 20, ratio=10))
    puller = Puller(images, http, lambda registry: [Host(base=f"http://{registry}/v2")], pulling=QUICK)
    try:
        with pytest.raises(PullFailed, match="grows to more than 10 times its size"):
            await puller.pull(f"{registry.host}/test/app:1")
    finally:
        puller.close()
    assert contents(images) == []


async def test_images_of_this_project_are_in_no_registry(puller):
    with pytest.raises(PullFailed, match=r"podwire\.local/no:1: images of podwire\.local are built") as raised:
        await puller.pull("podwire.local/no:1")
    assert raised.value.missing


async def test_layers_that_claim_to_be_endless_are_not_downloaded(registry, puller, images, made):
    made.manifest["layers"][0]["size"] = 1 << 50
    registry.serve_image(made)
    with pytest.raises(PullFailed, match="layers: have more than 34359738368 bytes"):
        await puller.pull(f"{registry.host}/test/app:1")
    assert [asked for asked in registry.asked if "/blobs/" in asked] == []
    assert contents(images) == []


class Proxy:
    """An HTTP proxy on loopback: forwards requests by their whole URL, tunnels by CONNECT; all names mean one host."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target, self.asked, self.authorizations, self.refusal = target, [], [], ""

    @contextlib.asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            yield self

    async def _serve(self, reader, writer) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, url, _ = head.split("\r\n")[0].split(" ")
        self.asked.append(f"{method} {url}")
        self.authorizations += re.findall(r"(?im)^proxy-authorization: (.*?)\r?$", head)
        if self.refusal:
            writer.write(f"HTTP/1.1 {self.refusal}\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()
            return
        there, onward = await asyncio.open_connection(*self.target)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = "/" + url.split("/", 3)[3]
            onward.write(head.replace(url, path, 1).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").encode())
        await asyncio.gather(pump(reader, onward), pump(there, writer))


async def pump(reader, writer) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
async def proxy(registry):
    async with Proxy(("127.0.0.1", registry.port)).running() as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def pulling_by(images, base, **environ):
    """A puller for registries of any name with these variables."""
    async with contextlib.AsyncExitStack() as stack:
        http = LazyHttp(environ)
        stack.push_async_callback(http.close)
        puller = Puller(images, http, lambda _registry: [Host(base=base)], pulling=QUICK)
        stack.callback(puller.close)
        yield puller


async def test_proxy_of_the_environment_is_asked_with_its_password(registry, proxy, images, made):
    registry.serve_image(made)
    url = f"http://ann:secret@127.0.0.1:{proxy.port}"
    async with pulling_by(images, "http://reg.test/v2", HTTP_PROXY=url) as puller:
        await puller.pull("reg.test/test/app:1")
    assert proxy.asked[0] == "GET http://reg.test/v2/test/app/manifests/1"
    assert set(proxy.authorizations) == {basic("ann", "secret")}
    assert set(registry.authorizations) == {""}


async def test_registry_with_tls_is_asked_through_a_tunnel_of_the_proxy(registry, proxy, images):
    """The registry of this test speaks no TLS: the tunnel is what counts."""
    async with pulling_by(images, "https://reg.test/v2", HTTPS_PROXY=f"127.0.0.1:{proxy.port}") as puller:
        with pytest.raises(PullFailed, match=r"reg\.test/test/app:1: reg\.test: "):
            await puller.pull("reg.test/test/app:1")
    assert set(proxy.asked) == {"CONNECT reg.test:443"}


async def test_hosts_of_no_proxy_are_asked_directly(registry, proxy, images, made):
    registry.serve_image(made)
    environ = {"HTTP_PROXY": f"127.0.0.1:{proxy.port}", "NO_PROXY": "10.0.0.0/8"}
    async with pulling_by(images, f"http://{registry.host}/v2", **environ) as puller:  # loopback, always
        await puller.pull(f"{registry.host}/test/app:1")
    assert proxy.asked == []


async def test_proxy_that_refuses_or_is_not_there_is_named_without_its_password(proxy, images):
    proxy.refusal = "403 Forbidden"
    url = f"http://ann:secret@127.0.0.1:{proxy.port}"
    async with pulling_by(images, "https://reg.test/v2", HTTPS_PROXY=url) as puller:
        with pytest.raises(PullFailed, match=rf"proxy 127\.0\.0\.1:{proxy.port}: 403 Forbidden") as raised:
            await puller.pull("reg.test/test/app:1")
    assert "secret" not in str(raised.value)
    assert len(proxy.asked) == 1
    async with pulling_by(images, "https://reg.test/v2", HTTPS_PROXY="ann:secret@127.0.0.1:9") as puller:
        with pytest.raises(PullFailed, match=r"proxy 127\.0\.0\.1:9: cannot connect") as raised:
            await puller.pull("reg.test/test/app:1")
    assert "secret" not in str(raised.value)


async def test_variable_that_is_not_a_proxy_is_named(images):
    async with pulling_by(images, "https://reg.test/v2", HTTPS_PROXY="socks5://p:1080") as puller:
        with pytest.raises(PullFailed, match="HTTPS_PROXY: is not the URL of a proxy"):
            await puller.pull("reg.test/test/app:1")
