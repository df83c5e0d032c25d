"""Identities that a client gets from elsewhere: a plugin, an issuer, a proxy's password, another user's name."""

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import yaml

from podwire.protocols.k8sapi.client_side import NoCredentials, Unreachable
from podwire.protocols.k8sapi.exec_credential import ExecPlugin, InteractiveMode
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig, Impersonation, Pem, write_kubeconfig
from podwire.protocols.k8sapi.server_side import Request, Response
from podwire.transports import credentials
from podwire.transports.certificates import self_signed
from podwire.transports.exec_plugin import run_plugin
from podwire.transports.http_client import connect, opened
from podwire.transports.http_server import serve
from podwire.transports.http_websocket_client import HandshakeRefused
from podwire.transports.tls import server_context
from tests.eventually import eventually_async
from tests.transports.proxy import ConnectProxy

V1 = "client.authentication.k8s.io/v1"
PRINT = """#!/bin/sh
# Counts its runs; the n-th prints token-n and what EXTRA says.
echo x >> "$0.runs"
printf %s "$KUBERNETES_EXEC_INFO" > "$0.info"
runs=$(wc -l < "$0.runs")
echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\","
echo "\\"status\\": {\\"token\\": \\"token-$((runs))\\" $EXTRA}}"
"""


@pytest.fixture
def program(tmp_path):
    """Writes a plugin; returns its path."""

    def write(text=PRINT):
        path = tmp_path / "plugin"
        path.write_text(text)
        path.chmod(0o755)
        return path

    return write


def runs(path) -> int:
    return len(path.with_name(f"{path.name}.runs").read_text().splitlines())


def alive(path) -> bool:
    """Whether a plugin that wrote its process id still runs."""
    file = path.with_name(f"{path.name}.pid")
    pid = file.read_text().strip() if file.exists() else ""
    return bool(pid) and Path("/proc", pid).exists()


def plugin(command, **options) -> ExecPlugin:
    options = {"interactive_mode": InteractiveMode.NEVER, **options}
    return ExecPlugin(command=str(command), api_version=V1, **options)


@pytest.fixture
async def server(served):
    """A server that keeps requests, and rejects the tokens that are put into `server.revoked`."""

    class Recorded:
        def __init__(self):
            self.url, self.requests, self.revoked = "", [], set()

        def tokens(self):
            return [request.headers.get("authorization", "") for request in self.requests]

    recorded = Recorded()

    async def handler(request: Request):
        recorded.requests.append(request)
        revoked = request.headers.get("authorization", "") in recorded.revoked
        return Response(status=401 if revoked else 200, body=b"{}")

    recorded.url = await served(handler)
    return recorded


async def test_a_plugin_is_run_once_for_many_requests(server, program):
    path = program()
    async with connect(Access(server=server.url, plugin=plugin(path))) as http:
        await asyncio.gather(*(http.request("GET", "/") for _ in range(20)))
    assert runs(path) == 1
    assert set(server.tokens()) == {"Bearer token-1"}
    info = json.loads(path.with_name("plugin.info").read_text())
    assert info == {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}}


async def test_a_rejected_token_is_replaced_and_the_request_sent_again(server, program):
    path = program()
    server.revoked = {"Bearer token-1"}
    async with connect(Access(server=server.url, plugin=plugin(path))) as http:
        replies = await asyncio.gather(*(http.request("POST", "/", body=b"x") for _ in range(5)))
        incoming = await http.stream("GET", "/")
        assert incoming.status == 200
        incoming.close()
    assert {reply.status for reply in replies} == {200}
    assert runs(path) == 2


async def test_a_request_that_stays_rejected_is_sent_twice(server, program):
    server.revoked = {"Bearer token-1", "Bearer token-2", "Bearer token-3"}
    async with connect(Access(server=server.url, plugin=plugin(program()))) as http:
        assert (await http.request("GET", "/")).status == 401
    assert server.tokens() == ["Bearer token-1", "Bearer token-2"]


@pytest.mark.parametrize(("end", "times"), [("2020-01-01T00:00:00Z", 2), ("2099-01-01T00:00:00Z", 1)])
async def test_credentials_are_used_until_they_expire(server, program, end, times):
    path = program()
    env = (("EXTRA", f', "expirationTimestamp": "{end}"'),)
    async with connect(Access(server=server.url, plugin=plugin(path, env=env))) as http:
        await http.request("GET", "/")
        await http.request("GET", "/")
    assert runs(path) == times


async def test_a_plugin_that_asks_for_it_receives_the_cluster(program, tmp_path):
    path = program()
    (tmp_path / "ca").write_text("PEM")
    access = Access(server="https://h", ca=Pem(file=str(tmp_path / "ca")), server_name="n", proxy="http://p")
    await run_plugin(access, plugin(path, provide_cluster_info=True, cluster_config=b'{"a":1}'))
    assert json.loads(path.with_name("plugin.info").read_text())["spec"]["cluster"] == {
        "server": "https://h",
        "tls-server-name": "n",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "proxy-url": "http://p",
        "config": {"a": 1},
    }


async def test_a_certificate_of_a_plugin_is_presented(program, server):
    env = (("EXTRA", ', "clientCertificateData": "hush", "clientKeyData": "hush"'),)
    async with connect(Access(server="https://127.0.0.1:1", plugin=plugin(program(), env=env))) as http:
        with pytest.raises(NoCredentials, match="certificate and key do not work") as caught:
            await http.request("GET", "/")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        pytest.param("#!/bin/sh\nexit 3\n", "failed with exit code 3", id="exit code"),
        pytest.param("#!/bin/sh\necho hush\n", "the output is not JSON", id="no JSON"),
        pytest.param("#!/bin/sh\nhead -c 3000000 /dev/zero; sleep 60\n", "more than 1048576 bytes", id="too much"),
        pytest.param("#!/nowhere/sh\n", "not found", id="no interpreter"),
    ],
)
async def test_a_plugin_that_fails_is_an_error_of_the_request(server, program, text, reported):
    async with connect(Access(server=server.url, plugin=plugin(program(text)))) as http:
        with pytest.raises(NoCredentials, match=reported) as caught:
            await http.request("GET", "/")
    assert "hush" not in str(caught.value)
    assert server.requests == []


async def test_a_missing_plugin_says_how_to_install_it():
    missing = plugin("no-such-plugin", install_hint="Install it from the shelf.")
    with pytest.raises(NoCredentials, match="executable no-such-plugin not found\n\nInstall it from the shelf"):
        await run_plugin(Access(server="https://h"), missing)


async def test_a_plugin_that_must_ask_needs_a_terminal(program):
    with pytest.raises(NoCredentials, match="standard input is not a terminal"):
        await run_plugin(Access(server="https://h"), plugin(program(), interactive_mode=InteractiveMode.ALWAYS))


ASK = """#!/bin/sh
read answer
echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\","
echo "\\"status\\": {\\"token\\": \\"$answer\\"}}"
"""
RUN = """
import asyncio, sys
from podwire.protocols.k8sapi.exec_credential import ExecPlugin, InteractiveMode
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.transports.exec_plugin import run_plugin
version = "client.authentication.k8s.io/v1"
plugin = ExecPlugin(command=sys.argv[1], api_version=version, interactive_mode=InteractiveMode(sys.argv[2]))
print(asyncio.run(run_plugin(Access(server="https://h"), plugin)).token)
"""


@pytest.mark.parametrize(("mode", "token"), [("Always", "typed"), ("IfAvailable", "typed"), ("Never", "")])
def test_a_plugin_may_ask_at_a_terminal(program, mode, token):
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"typed\n")
        done = subprocess.run(
            [sys.executable, "-c", RUN, program(ASK), mode], stdin=theirs, capture_output=True, text=True, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.strip() == token, done.stderr
    assert token or "didn't return a token" in done.stderr


async def test_a_plugin_that_hangs_is_killed(program, tmp_path):
    path = program('#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 600\n')
    with pytest.raises(NoCredentials, match="did not end within"):
        await run_plugin(Access(server="https://h"), plugin(path), seconds=1.0)
    assert not alive(path)


async def test_closing_the_client_ends_a_plugin_that_runs(program):
    path = program('#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 600\n')
    async with connect(Access(server="http://127.0.0.1:1", plugin=plugin(path))) as http:
        asking = asyncio.create_task(http.request("GET", "/"))
        await eventually_async(
            lambda: path.with_name("plugin.pid").exists() and path.with_name("plugin.pid").read_text()
        )
        asking.cancel()
    assert not alive(path)


async def test_another_user_is_impersonated_in_headers(server):
    act_as = Impersonation(user="jane", uid="7", extra=(("a/b", ("x", "y")),))
    async with connect(Access(server=server.url, impersonate=act_as)) as http:
        await http.request("GET", "/")
    [request] = server.requests
    headers = {name: value for name, value in request.headers.items() if name.startswith("impersonate")}
    assert headers["impersonate-user"] == "jane"
    assert headers["impersonate-uid"] == "7"
    assert "impersonate-extra-a%2fb" in headers


async def test_a_user_name_and_a_password_are_sent(server):
    async with connect(Access(server=server.url, username="me", password="p:q")) as http:
        await http.request("GET", "/")
    assert server.tokens() == [f"Basic {base64.b64encode(b'me:p:q').decode()}"]


async def test_plain_http_goes_through_the_proxy(server):
    async with ConnectProxy() as proxy, connect(Access(server=server.url, proxy=proxy.url)) as http:
        assert (await http.request("GET", "/")).status == 200
    assert proxy.seen == [f"GET {server.url}/"]


@pytest.fixture
async def secure(tmp_path):
    """A server with TLS that is not trusted by anybody else."""
    both = self_signed(tmp_path / "pem", "server.example", ["127.0.0.1"])

    async def handler(request: Request):
        return Response(status=200, body=request.headers["authorization"].encode())

    server = await serve(handler, ssl_context=server_context(both, both))
    yield Access(
        server=f"https://127.0.0.1:{server.port}",
        ca=Pem(file=str(both)),
        server_name="server.example",
        token="hush",
    )
    await server.close(0.5)


async def test_https_goes_through_a_tunnel_of_the_proxy_which_sees_no_token(secure):
    async with ConnectProxy(password="me:secret") as proxy:
        access = Access(
            server=secure.server, ca=secure.ca, server_name=secure.server_name, token="hush", proxy=proxy.url
        )
        async with connect(access) as http:
            assert (await http.request("GET", "/")).body == b"Bearer hush"
        assert proxy.seen == [f"CONNECT {secure.server.removeprefix('https://')}"]
        assert b"hush" not in proxy.heads


@pytest.mark.parametrize("server_name", ["", "server.example"])
async def test_a_proxy_may_speak_tls_itself(secure, server_name):
    context = server_context(secure.ca.file, secure.ca.file)
    async with ConnectProxy(context=context) as proxy:
        access = Access(server=secure.server, ca=secure.ca, server_name=server_name, token="hush", proxy=proxy.url)
        async with connect(access) as http:
            assert (await http.request("GET", "/")).body == b"Bearer hush"


async def test_a_proxy_that_refuses_means_that_the_server_is_unreachable(secure):
    async with ConnectProxy(password="me:secret") as proxy:
        wrong = proxy.url.replace("secret", "wrong")
        access = Access(server=secure.server, ca=secure.ca, server_name=secure.server_name, proxy=wrong)
        async with connect(access) as http:
            with pytest.raises(Unreachable, match="407") as caught:
                await http.request("GET", "/")
    assert "wrong" not in str(caught.value)


async def test_a_websocket_goes_through_the_proxy_with_the_identity(server):
    async with ConnectProxy() as proxy, opened(Access(server=server.url, proxy=proxy.url, token="t")) as http:
        server.revoked = {"Bearer t"}
        with pytest.raises(HandshakeRefused):
            await http.websocket("/x", protocols=("v5.channel.k8s.io",))
    assert server.tokens() == ["Bearer t"]
    assert len(proxy.seen) == 1


def jwt(expires: float) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps({'exp': expires}).encode()).decode().rstrip('=')}.x"


@pytest.fixture
async def issuer(served):
    """An OIDC issuer that knows clients by their form only, and accepts a refresh token once."""

    class Issuer:
        url = ""
        refresh_token = "first"
        new = jwt(time.time() + 3600)

    issued = Issuer()

    async def handler(request: Request):
        if request.path.endswith("/openid-configuration"):
            return Response(status=200, body=json.dumps({"token_endpoint": f"{issued.url}/token"}).encode())
        form = parse_qs((await request.read(10_000)).decode())
        if form.get("client_id") != ["me"] or form["refresh_token"] != [issued.refresh_token]:
            return Response(status=401, body=b'{"error": "invalid_client"}')
        issued.refresh_token = "second"
        return Response(status=200, body=json.dumps({"id_token": issued.new, "refresh_token": "second"}).encode())

    issued.url = await served(handler)
    return issued


def write_oidc(path, server: str, issuer: str, id_token: str) -> None:
    config = {"idp-issuer-url": issuer, "client-id": "me", "refresh-token": "first", "id-token": id_token}
    document = json.loads(write_kubeconfig(Access(server=server)))
    document["users"][0]["user"] = {"auth-provider": {"name": "oidc", "config": config}}
    path.write_text(yaml.safe_dump(document))


async def test_an_id_token_that_expired_is_renewed_and_kept_in_the_kubeconfig(server, issuer, tmp_path):
    path = tmp_path / "config"
    write_oidc(path, server.url, issuer.url, jwt(time.time() - 1))
    async with connect(credentials.load(path)) as http:
        await asyncio.gather(*(http.request("GET", "/") for _ in range(5)))
    assert set(server.tokens()) == {f"Bearer {issuer.new}"}
    config = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (config["id-token"], config["refresh-token"]) == (issuer.new, "second")
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["config"]
    async with connect(credentials.load(path)) as http:
        await http.request("GET", "/")
    assert issuer.refresh_token == "second"


async def test_an_issuer_that_rejects_a_refresh_token_is_named(server, issuer, tmp_path):
    issuer.refresh_token = "other"
    path = tmp_path / "config"
    write_oidc(path, server.url, issuer.url, "")
    async with connect(credentials.load(path)) as http:
        with pytest.raises(NoCredentials, match=f"{issuer.url}: failed to refresh token: HTTP 401"):
            await http.request("GET", "/")
    assert server.requests == []


def test_the_usual_kubeconfigs_are_those_of_kubectl(tmp_path, monkeypatch):
    (tmp_path / ".kube").mkdir()
    home, other = tmp_path / ".kube/config", tmp_path / "other"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials.usual_files({}) == []
    home.write_text("")
    other.write_text("")
    assert credentials.usual_files({}) == [str(home)]
    named = f"{other}::{tmp_path}/missing:{home}:{other}"
    assert credentials.usual_files({"KUBECONFIG": named}) == [str(other), str(home)]


def test_a_file_that_is_too_large_is_refused(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(credentials.MAX_FILE + 1)
    with pytest.raises(BadKubeconfig, match="large: has more than 4194304 bytes"):
        credentials.load(tmp_path / "large")
