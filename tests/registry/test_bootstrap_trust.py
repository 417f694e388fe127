"""The ConfigMap that tells aggregated servers which proxies to trust: several API servers write it."""

import datetime
import os

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from kas.registry import bootstrap, bootstrap_trust

NOW = "2024-01-02T03:04:05Z"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(bootstrap_trust, "time", datetime.datetime.fromisoformat(NOW).timestamp)


def authority(name, ends_in=3600.0):
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.fromisoformat(NOW)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(seconds=ends_in))
    return made.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


ONE, OTHER, EXPIRED, JUST = authority("one"), authority("other"), authority("expired", -400), authority("just", -200)
NOBODY = {f"requestheader-{key}": "[]" for key in bootstrap_trust.LISTS}


def written(known, **own):
    """Returns what ``own`` makes of a ConfigMap with ``known``; None if it is left alone."""
    wanted = bootstrap.authentication_config_map(NOW, **own)
    if known is None:
        return wanted.obj.get("data")
    old = {**wanted.obj, "data": known}
    changes = bootstrap.plan([wanted], lambda *key: old)
    return changes[0].entry.obj["data"] if changes else None


HEADERS = {"username_headers": (), "group_headers": (), "extra_prefixes": ()}


@pytest.mark.parametrize("known, own, data", [
    (None, {"request_header_ca": OTHER, "allowed_names": ["first", "second"], **HEADERS},
     {**NOBODY, "requestheader-client-ca-file": OTHER, "requestheader-allowed-names": '["first","second"]'}),
    (None, {"client_ca": ONE}, {"client-ca-file": ONE}),
    (None, {"client_ca": f"a comment\n{ONE}\n{ONE}{EXPIRED}{JUST}"}, {"client-ca-file": ONE + JUST}),
    ({"client-ca-file": OTHER}, {"client_ca": ONE}, {"client-ca-file": OTHER + ONE}),
    ({"client-ca-file": OTHER + ONE}, {"client_ca": ONE}, None),
    ({"client-ca-file": EXPIRED + ONE}, {"client_ca": ONE}, {"client-ca-file": ONE}),
    ({"client-ca-file": "nonsense", "more": "of somebody"}, {"client_ca": ONE}, {"client-ca-file": ONE}),
    ({**NOBODY, "requestheader-client-ca-file": ONE}, {"request_header_ca": OTHER, **HEADERS},
     {**NOBODY, "requestheader-client-ca-file": ONE + OTHER}),
    ({**NOBODY, "requestheader-client-ca-file": OTHER}, {"request_header_ca": OTHER, **HEADERS}, None),
    ({**NOBODY, "requestheader-client-ca-file": OTHER, "requestheader-group-headers": '["A","B","A"]'},
     {"request_header_ca": OTHER, **HEADERS, "group_headers": ["C", "B"]},
     {**NOBODY, "requestheader-client-ca-file": OTHER, "requestheader-group-headers": '["A","B","C"]'}),
    ({**NOBODY, "requestheader-client-ca-file": OTHER, "requestheader-group-headers": "{"}, {"request_header_ca": OTHER, **HEADERS},
     {**NOBODY, "requestheader-client-ca-file": OTHER}),
])  # fmt: skip
def test_servers_add_their_own_cas(known, own, data):
    assert written(known, **own) == data


def test_too_much_for_a_config_map_is_replaced():
    known = {**NOBODY, "requestheader-client-ca-file": OTHER, "requestheader-group-headers": '["' + "A" * (1 << 20) + '"]'}
    assert written(known, client_ca=ONE) == {"client-ca-file": ONE}


def test_the_last_readable_content_of_files_is_used(tmp_path):
    file, texts = tmp_path / "ca.crt", bootstrap_trust.Texts()
    with pytest.raises(OSError):
        texts.of(str(file))
    file.write_text(ONE)
    assert texts.of("") == "" and texts.of(str(file)) == ONE
    texts.changed()
    assert not texts.changed()
    file.write_text(OTHER)
    os.utime(file, ns=(1, 1))
    assert texts.changed() and not texts.changed() and texts.of(str(file)) == OTHER
    file.unlink()
    assert texts.changed() and texts.of(str(file)) == OTHER
