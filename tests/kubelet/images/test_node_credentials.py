"""Logins of the node: Docker's files, and credential providers that are real programs."""

import asyncio
import json
import os

import pytest

from podwire.kubelet.images.credential_providers import (
    BadProviders,
    CredentialProviders,
    ProviderLimits,
    load_providers,
    parse_duration,
)
from podwire.kubelet.images.node_credentials import NodeCredentials, docker_files
from podwire.transports.clock import SystemClock

V1 = "credentialprovider.kubelet.k8s.io/v1"


class Clock(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Programs:
    """Providers in a directory of their own; each call of one adds a line to its log."""

    def __init__(self, directory) -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        self.config = directory / "config.yaml"
        self.clock = Clock()

    def write(self, script: str, name: str = "provider") -> None:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\ncat >> {path}.log; echo >> {path}.log\n{script}\n")
        path.chmod(0o755)

    def answer(self, cache="Image", duration='"1h"', auth=None, version=V1, kind="CredentialProviderResponse") -> None:
        auth = auth or {"r.test": {"username": "ann", "password": "secret"}}
        response = {"kind": kind, "apiVersion": version, "cacheKeyType": cache, "auth": auth}
        if duration:
            response["cacheDuration"] = json.loads(duration)
        self.write(f"cat <<'END'\n{json.dumps(response)}\nEND")

    def calls(self, name: str = "provider") -> list[dict]:
        log = self.directory / f"{name}.log"
        return [json.loads(line) for line in log.read_text().splitlines() if line] if log.exists() else []

    def load(self, limits=None, **provider):
        row = {"name": "provider", "apiVersion": V1, "matchImages": ["*.test"], "defaultCacheDuration": "10m"}
        document = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}
        self.config.write_text(json.dumps({**document, "providers": [{**row, **provider}]}))
        providers = load_providers(self.config, self.directory)
        return CredentialProviders(providers, self.directory, self.clock, limits or ProviderLimits())


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


async def logins(providers, repository="r.test/app"):
    return [(item.username, item.password) for item in await NodeCredentials((), providers)(repository)]


async def test_a_provider_is_asked_with_the_repository_and_its_arguments_and_variables(programs):
    programs.write(
        f'echo \'{{"kind": "CredentialProviderResponse", "apiVersion": "{V1}", "cacheKeyType": "Image", '
        '"auth": {"*.test/app": {"username": "\'"$1-$WHO-${HOME:+home}"\'", "password": "p"}}}\''
    )
    providers = programs.load(args=["first"], env=[{"name": "WHO", "value": "me"}])
    assert await logins(providers) == [("first-me-home", "p")]
    assert programs.calls() == [{"kind": "CredentialProviderRequest", "apiVersion": V1, "image": "r.test/app"}]
    assert await logins(providers, "elsewhere.example/app") == []
    assert len(programs.calls()) == 1


@pytest.mark.parametrize(
    ("cache", "asked"),
    [("Image", ["r.test/a", "r.test/b", "s.test/a"]), ("Registry", ["r.test/a", "s.test/a"]), ("Global", ["r.test/a"])],
)
async def test_an_answer_is_cached_for_the_image_the_registry_or_all(programs, cache, asked):
    programs.answer(cache)
    providers = programs.load()
    for repository in ("r.test/a", "r.test/a", "r.test/b", "s.test/a"):
        await logins(providers, repository)
    assert [call["image"] for call in programs.calls()] == asked


@pytest.mark.parametrize(
    ("duration", "default", "ahead", "calls"),
    [
        ('"5m"', "10m", 200, 1),
        ('"5m"', "10m", 400, 2),
        ('"0s"', "10m", 0, 2),
        ("", "10m", 500, 1),
        ("", "10m", 700, 2),
        ("", "0s", 0, 2),
    ],
)
async def test_an_answer_is_cached_as_long_as_it_says_or_by_default(programs, duration, default, ahead, calls):
    programs.answer(duration=duration)
    providers = programs.load(defaultCacheDuration=default)
    await logins(providers)
    programs.clock.ahead = ahead
    await logins(providers)
    assert len(programs.calls()) == calls


async def test_calls_for_one_image_at_the_same_time_are_one(programs):
    programs.answer()
    providers = programs.load()
    assert await asyncio.gather(*[logins(providers) for _ in range(5)]) == [[("ann", "secret")]] * 5
    assert len(programs.calls()) == 1


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo trouble >&2; exit 3", "exit status 3: trouble"),
        ("echo hunter2", "error decoding credential provider plugin response from stdout"),
        ("sleep 100", "error execing credential provider plugin provider for image r.test/app"),
        ("yes hunter2", "more than"),
        (f'echo \'{{"kind": "CredentialProviderResponse", "apiVersion": "{V1}", "cacheKeyType": "All"}}\'', "a valid"),
        ('echo \'{"kind": "CredentialProviderResponse", "apiVersion": "x/v1"}\'', "did not match expected apiVersion"),
        (f'echo \'{{"kind": "Other", "apiVersion": "{V1}"}}\'', "error decoding"),
    ],
)
async def test_a_provider_that_fails_is_logged_and_the_pull_goes_on_without_it(programs, caplog, script, words):
    programs.write(script)
    assert await logins(programs.load(ProviderLimits(call=2.0, answer=1 << 16))) == []
    [record] = [record for record in caplog.records if "from provider" in record.message]
    assert words in record.error
    assert "hunter2" not in record.error


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"name": "a/b"}, r'providers\[0\].name: Invalid value: "a/b": provider name cannot contain \'/\''),
        ({"name": ".."}, "provider name cannot be '..'"),
        ({"name": "missing"}, "plugin binary executable .*/missing did not exist"),
        ({"apiVersion": "v2"}, r'apiVersion: Unsupported value: "v2": supported values'),
        ({"matchImages": []}, "matchImages: Required value: at least 1 item in matchImages is required"),
        ({"defaultCacheDuration": "soon"}, "defaultCacheDuration: Invalid value"),
        ({"tokenAttributes": {"serviceAccountTokenAudience": "x"}}, "not supported for providers"),
        ({"extra": 1}, r"providers\[0\].extra: unknown field"),
    ],
)
def test_a_wrong_configuration_names_its_field(programs, row, words):
    programs.answer()
    with pytest.raises(BadProviders, match=words):
        programs.load(**row)


def test_a_configuration_may_be_a_directory_of_files_but_names_are_unique(programs, tmp_path):
    programs.answer()
    programs.load()
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(BadProviders, match="no configuration files found"):
        load_providers(folder, programs.directory)
    (folder / "a.yaml").write_bytes(programs.config.read_bytes())
    (folder / "ignored.txt").write_text("?")
    assert [provider.name for provider in load_providers(folder, programs.directory)] == ["provider"]
    (folder / "b.json").write_bytes(programs.config.read_bytes())
    with pytest.raises(BadProviders, match='duplicate provider name "provider"'):
        load_providers(folder, programs.directory)
    (folder / "b.json").write_text("{")
    with pytest.raises(BadProviders, match=r"b\.json: it is not YAML"):
        load_providers(folder, programs.directory)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h30m", 5400), ("0", 0), ("0s", 0), ("1.5s", 1.5), ("200ms", 0.2), ("", None), ("5", None)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


async def test_the_first_of_dockers_files_counts(tmp_path, caplog):
    root, home = tmp_path / "root", tmp_path / "home"
    (home / ".docker").mkdir(parents=True)
    root.mkdir()

    def write(path, name, old=False):
        logins = {"r.test": {"username": name, "password": "p"}}
        path.write_text(json.dumps(logins if old else {"auths": logins}))

    node = NodeCredentials(docker_files(root, home))
    write(root / ".dockercfg", "old", old=True)
    assert [item.username for item in await node("r.test/app")] == ["old"]
    write(home / ".docker/config.json", "home")
    assert [item.username for item in await node("r.test/app")] == ["home"]
    write(root / "config.json", "kubelet")
    assert [item.username for item in await node("r.test/app")] == ["kubelet"]
    assert await node("other.test/app") == []
    (root / "config.json").write_text('{"auths": {"r.test": "hunter2"}}')
    assert [item.username for item in await node("r.test/app")] == ["home"]
    os.mkfifo(root / "fifo")
    (root / "config.json").unlink()
    (root / "config.json").symlink_to("fifo")
    assert [item.username for item in await node("r.test/app")] == ["home"]
    assert "hunter2" not in caplog.text
