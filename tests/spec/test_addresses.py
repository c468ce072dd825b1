"""Addresses with secrets, of private networks or out of their folder are told; plain public ones are not."""

from __future__ import annotations

import pytest

from neuroledger.spec.addresses import said_of, secret, texts

PLAIN = [
    "https://example.org/a%20b/c.nc?version=2&download=1",
    "https://zenodo.org:443/records/1/files/a..b.mat",
    "s3://open-neuro/ds1/x",
    "https://8.8.8.8/a",
    "https://[2606:4700::1]/a",
    "https://gin.g-node.org/a/b/raw/x%2Fy",
    "https://xn--bcher-kva.example/a",
]
SECRET = [
    "https://user:pw@example.org/a",
    "https://token@example.org/a",
    "https://user%3Apw@example.org",
    "s3://key:pw@bucket/a",
    "https://b.s3.amazonaws.com/a?X-Amz-Signature=0&x=1",
    "https://example.org/a?api_key=1",
    "https://example.org/?access_token=x",
    "ssh://root:pw@host.example/x",
    "HTTPS://User:Pw@example.org/",
]
PRIVATE = [
    "https://localhost/a",
    "http://127.0.0.1:9000/a",
    "https://127.1/a",
    "https://2130706433/a",
    "https://0x7f000001/a",
    "https://[::1]/a",
    "https://[::ffff:169.254.169.254]/a",
    "http://169.254.169.254/latest/meta-data/",
    "https://10.0.0.1/",
    "https://0/",
    "https://192.168.1.1/",
    "https://metadata.google.internal/a",
    "https://nas/a",
    "https://lab.local/a",
    "https://[fd00::1]/",
    "https://[64:ff9b::a00:1]/",
    "https://LOCALHOST./a",
    "https://017700000001/a",
    "https://100.64.0.1/a",
    "https://224.0.0.1/",
]
ESCAPED = [
    "https://example.org/a/%2e%2e/%2e%2e/b",
    "https://example.org/a/%252e%252e/b",
    "https://example.org/a/../b",
    "https://example.org/a%5c..%5cb",
    "https://example.org/a%00.nc",
    "s3://bucket/%2e%2e/other",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "https://exаmple.org/a",
    "https://example.org:99999/a",
    "https://[::1/a",
]


@pytest.mark.parametrize("address", PLAIN)
def test_a_plain_public_address_is_no_problem(address: str) -> None:
    assert list(said_of(f"from {address}, which")) == []


@pytest.mark.parametrize("address", SECRET)
def test_a_secret_in_an_address_is_an_error_that_does_not_repeat_it(
    address: str,
) -> None:
    for rule in (secret, None):
        ((severity, words, fix),) = said_of(address, *([rule] if rule else []))
        assert (
            severity == "error"
            and fix
            and "pw" not in words.lower()
            and "token@" not in words
        )


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_of_a_private_machine_needs_a_person(address: str) -> None:
    assert [severity for severity, _, _ in said_of(address)] == ["warning"]


@pytest.mark.parametrize("address", ESCAPED)
def test_an_address_that_leads_elsewhere_is_an_error(address: str) -> None:
    assert [severity for severity, _, _ in said_of(address)] == ["error"]


def test_names_of_fields_are_texts_too() -> None:
    held = {"a": ["x", {"https://user:pw@h.org/": 1}]}
    assert [at for at, text in texts(held) if list(said_of(text))] == [
        ("a", 1, "https://user:pw@h.org/")
    ]
