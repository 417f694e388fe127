"""Certificates and keys that do not match, with Go's messages."""

import pytest

from kas.config.keypairs import problem
from kas.config.options import read
from kas.preflight import unusable
from tests.pki import issue, rsa_key


@pytest.fixture
def files(tmp_path):
    one, other, third = issue([("CN", "a")]), issue([("CN", "b")]), issue([("CN", "c")], key=rsa_key(65537))
    for name, data in {
        "crt": one.pem, "key": one.key_pem, "other": other.key_pem, "rsa": third.key_pem, "both": one.key_pem + one.pem,
        "text": b"not a certificate\n", "empty": b"",
        "params": b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(data)
    return lambda name: str(tmp_path / name)


@pytest.mark.parametrize(
    ("cert", "key", "says"),
    [
        ("crt", "key", ""),
        ("both", "both", ""),
        ("gone", "key", ""),
        ("text", "key", "tls: failed to find any PEM data in certificate input"),
        ("crt", "text", "tls: failed to find any PEM data in key input"),
        ("key", "key", "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have "
         "been switched"),
        ("params", "key", 'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of the following '
         "types: [EC PARAMETERS]"),
        ("crt", "crt", "tls: found a certificate rather than a key in the PEM for the private key"),
        ("crt", "params", 'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after skipping PEM blocks of the '
         "following types: [EC PARAMETERS]"),
        ("crt", "other", "tls: private key does not match public key"),
        ("crt", "rsa", "tls: private key type does not match public key type"),
    ],
)  # fmt: skip
def test_pairs(files, cert, key, says):
    assert problem(files(cert), files(key), "serving-cert") == says


def test_an_empty_file_is_named(files):
    said = problem(files("crt"), files("empty"), "serving-cert")
    assert said == f'missing content for serving cert "serving-cert::{files("crt")}::{files("empty")}"'


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--tls-cert-file={crt}", "--tls-private-key-file={other}"], ["tls: private key does not match public key"]),
        (["--proxy-client-cert-file={text}", "--proxy-client-key-file={key}"], ["tls: failed to find any PEM data in certificate input"]),
        (["--tls-sni-cert-key={crt},{text}:a"], ["failed to load SNI cert and key: tls: failed to find any PEM data in key input"]),
        (["--service-account-key-file={text}"],
         ["error reading public key file {text}: data does not contain any valid RSA or ECDSA public keys"]),
    ],
)  # fmt: skip
def test_flags_with_key_pairs(files, flags, says):
    names = {name: files(name) for name in ("crt", "other", "text", "key")}
    options, errors = read([flag.format(**names) for flag in flags])
    assert [*errors, *unusable(options)] == [text.format(**names) for text in says]
