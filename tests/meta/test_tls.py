"""Verification of backends' certificates: as strict as Go's, whatever the version of Python."""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from kas.aggregator.transport import ProxyCertificate, TLSContexts
from kas.client import egress, kubeconfig
from kas.client.http import verified_tls
from kas.meta import tls
from kas.store.etcd.client import Config
from tests import pki

AUTHORITY = pki.authority("servers")


def of_etcd(ca: str) -> ssl.SSLContext:
    context = Config(servers=("https://a:1",), cafile=ca).targets()[0].tls()
    assert context is not None
    return context


def of_backends(ca: str) -> ssl.SSLContext:
    return TLSContexts(ProxyCertificate("", "")).of(base64.b64encode(Path(ca).read_bytes()).decode(), False)


CLIENTS: dict[str, Callable[[str], ssl.SSLContext]] = {
    "kubelets": verified_tls, "webhooks": lambda ca: kubeconfig.client_tls(Path(ca).read_bytes()), "etcd": of_etcd,
    "backends": of_backends,
    "proxies": lambda ca: egress._context({"caBundle": ca, "clientCert": ca, "clientKey": ca.replace(".crt", ".key")}),
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
def test_extensions_that_may_be_missing(client, tmp_path, monkeypatch):
    default = ssl.create_default_context

    def of_313(*args, **more) -> ssl.SSLContext:
        context = default(*args, **more)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", of_313)
    context = CLIENTS[client](AUTHORITY.write(tmp_path, "ca")[0])
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("dns", "believed"), [(("a.test",), True), (("b.test",), False), ((), False)])
def test_a_common_name_is_not_a_server_name(client, dns, believed, tmp_path):
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(*pki.issue([("CN", "a.test")], AUTHORITY, usages=("server",), dns=dns).write(tmp_path, "server"))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = CLIENTS[client](AUTHORITY.write(tmp_path, "ca")[0]).wrap_bio(back, there, server_hostname="a.test")
    answering = shown.wrap_bio(there, back, server_side=True)

    def shake() -> None:
        for side in (asking, answering, asking):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()

    if believed:
        shake()
        assert asking.getpeercert()
        return
    with pytest.raises(ssl.SSLCertVerificationError) as e:
        shake()
    assert e.value.verify_code == 62


def bundle(*ders: bytes) -> bytes:
    return b"".join(b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n" for der in ders)


def test_the_number_of_cas_is_bounded_and_they_are_loaded_one_by_one():
    """OpenSSL holds the interpreter's lock while it loads them, in quadratic time."""
    one, other = (pki.authority(name).der for name in ("one", "other"))

    class Context:
        loaded: list[bytes] = []

        def load_verify_locations(self, cadata):
            self.loaded.append(cadata)

    tls.trust_authorities(Context(), bundle(*[one, other] * (tls.MOST_AUTHORITIES // 2)))
    assert Context.loaded == [one, other] * (tls.MOST_AUTHORITIES // 2)
    with pytest.raises(tls.AuthoritiesError, match="more than"):
        tls.trust_authorities(Context(), bundle(*[one] * (tls.MOST_AUTHORITIES + 1)))
    assert len(Context.loaded) == tls.MOST_AUTHORITIES


def test_invalid_certificates_of_a_bundle_are_skipped():
    """As ``CertPool.AppendCertsFromPEM`` does; a block with several certificates is invalid."""
    one, other = (pki.authority(name).der for name in ("one", "other"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.trust_authorities(context, b"text\n" + bundle(b"", b"\x30", b"\x30\x82", one[:-1], one + other, b"\x30\x01x", other))
    assert context.get_ca_certs(binary_form=True) == [other]
    for bad in (bundle(one + other), b"", bundle(b"x"), b"-----BEGIN CERTIFICATE-----\n" * 10):
        with pytest.raises(tls.AuthoritiesError, match="unable to parse bytes as PEM block"):
            tls.trust_authorities(context, bad)
