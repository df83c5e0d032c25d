"""EncryptionConfiguration files: what is accepted, and how a bad one is refused."""

import base64

import pytest
import yaml

from podwire.kinds.catalog import storage_prefixes
from podwire.protocols.settings import BadConfig
from podwire.store.encryption import read_encryption_configuration

SECRET = base64.b64encode(b"s" * 32).decode()
AESGCM = {"aesgcm": {"keys": [{"name": "key1", "secret": SECRET}]}}


def document(*providers, resources=("secrets",), **more):
    rule = {"resources": list(resources), "providers": list(providers)}
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [rule], **more}


def read(tmp_path, content):
    path = tmp_path / "encryption.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return read_encryption_configuration(path, storage_prefixes)


def test_the_resources_of_the_configuration_are_encrypted(tmp_path):
    made = read(tmp_path, document(AESGCM, {"identity": {}}, resources=["secrets", "*.apps", "widgets.example.com"]))
    for key, encrypted in (
        ("/registry/secrets/default/s", True),
        ("/registry/deployments/default/d", True),
        ("/registry/example.com/widgets/default/w", True),
        ("/registry/configmaps/default/c", False),
    ):
        assert made.encrypt(key, key.encode(), b"{}").startswith(b"k8s:enc:aesgcm:v1:key1:") is encrypted


@pytest.mark.parametrize("name", ["aesgcm", "aescbc", "secretbox"])
def test_every_provider_with_keys_encrypts(tmp_path, name):
    made = read(tmp_path, document({name: {"keys": [{"name": "key1", "secret": SECRET}]}}))
    assert made.encrypt("/registry/secrets/a/b", b"k", b"{}").startswith(f"k8s:enc:{name}:v1:key1:".encode())


def test_the_first_rule_that_names_a_resource_decides(tmp_path):
    content = document({"identity": {}})
    content["resources"].append({"resources": ["*.*"], "providers": [AESGCM]})
    made = read(tmp_path, content)
    assert made.encrypt("/registry/secrets/a/b", b"k", b"{}") == b"{}"
    assert made.encrypt("/registry/pods/a/b", b"k", b"{}") != b"{}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "is not YAML"),
        ({}, "apiVersion: is required"),
        (document(AESGCM, extra=1), "extra: is not a setting"),
        (document(AESGCM, kind="Encryption"), "kind: 'Encryption' must be one of EncryptionConfiguration"),
        (document(AESGCM, resources=[]), "resources[0].resources: must be a list with at least one item"),
        (document(), "resources[0].providers: must be a list with at least one item"),
        (document(AESGCM, resources=["secret"]), "resources[0].resources[0]: 'secret' is not a resource that is"),
        (document(AESGCM, resources=["*"]), "resources[0].resources[0]: use '*.' to encrypt all"),
        (document(AESGCM, resources=["Secrets"]), "resource name should not contain capital letters"),
        (document(AESGCM, resources=["events.events.k8s.io"]), "Use 'events' instead"),
        (document({**AESGCM, "identity": {}}), "resources[0].providers[0]: must have exactly one provider"),
        (document({"rot13": {}}), "resources[0].providers[0].rot13: is not a setting; known settings: aesgcm"),
        (document({"secretbox": {"keys": []}}), "secretbox.keys: must be a list with at least one item"),
        (document({"secretbox": {"keys": [{"name": "a", "secret": "YWJj"}]}}), "base64 of 32 bytes, not of 3"),
        (document({"kms": {}}), "providers[0].kms: is not supported"),
        (document({"aesgcm": {"keys": []}}), "aesgcm.keys: must be a list with at least one item"),
        (document({"aesgcm": {"keys": [{"name": "a"}]}}), "aesgcm.keys[0].secret: is required"),
        (document({"aesgcm": {"keys": [{"name": "a:b", "secret": SECRET}]}}), "keys[0].name: must be a name without"),
        (document({"aesgcm": {"keys": [{"name": "a", "secret": "?"}]}}), "keys[0].secret: must be base64"),
        (document({"aesgcm": {"keys": [{"name": "a", "secret": "YWJj"}]}}), "16, 24 or 32 bytes, not of 3"),
        (
            document({"aesgcm": {"keys": [{"name": "a", "secret": SECRET}] * 2}}),
            "aesgcm.keys[1].name: 'a' is the name of another key, too",
        ),
    ],
)
def test_a_bad_configuration_is_refused_with_the_field_and_the_reason(tmp_path, content, words):
    with pytest.raises(BadConfig) as raised:
        read(tmp_path, content)
    assert words in str(raised.value)
    assert SECRET not in str(raised.value)
