"""A CA that signs certificate requests, and the rules of Kubernetes' signers.

Upstream: ``pkg/controller/certificates/{authority,signer}``, ``pkg/apis/certificates/helpers.go``.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kas.auth.user import NODE_PREFIX, NODES
from kas.meta.pem import unreadable
from kas.meta.publickeys import private_key, public_key

CLIENT, KUBELET_CLIENT, KUBELET_SERVING = (
    "kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
)  # fmt: skip
LIFE, SHORTEST = datetime.timedelta(days=365), datetime.timedelta(minutes=10)
BACKDATE = datetime.timedelta(minutes=5)  # for clocks that are slow
SHORT = datetime.timedelta(hours=8)  # shorter lifetimes are not reduced by the backdating
_SIGNATURE, _ENCIPHERMENT = "digital signature", "key encipherment"
_KEY_USAGES = {
    "signing": "digital_signature", _SIGNATURE: "digital_signature", "content commitment": "content_commitment",
    _ENCIPHERMENT: "key_encipherment", "data encipherment": "data_encipherment", "key agreement": "key_agreement",
    "cert sign": "key_cert_sign", "crl sign": "crl_sign",
}  # fmt: skip
_KEY_USAGE_FIELDS = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign",
    "encipher_only", "decipher_only",
)  # fmt: skip
_EXTENDED = {"client auth": ExtendedKeyUsageOID.CLIENT_AUTH, "server auth": ExtendedKeyUsageOID.SERVER_AUTH}


def request_of(pem: bytes) -> x509.CertificateSigningRequest:
    """Parse a request completely, which may take long. Raises ValueError if it is invalid or not signed with its own key."""
    try:
        found = x509.load_pem_x509_csr(pem)
        _ = found.subject, found.extensions  # cached by the request object
        public_key(found)  # refuses keys that are expensive to load
        valid = found.is_signature_valid
    except unreadable() as e:
        raise ValueError(str(e)) from None
    if not valid:
        raise ValueError("the request is not signed with its own key")
    return found


def _names(request: x509.CertificateSigningRequest) -> dict[type, list[x509.GeneralName]]:
    """Return the alternative names by type."""
    out: dict[type, list[x509.GeneralName]] = {}
    try:
        san = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return out
    for name in san.value:
        out.setdefault(type(name), []).append(name)
    return out


def _texts(request: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(a.value) for a in request.subject.get_attributes_for_oid(oid)]


def common_name(request: x509.CertificateSigningRequest) -> str:
    """Return the last common name of the subject, as Go does."""
    return (_texts(request, NameOID.COMMON_NAME) or [""])[-1]


def kubelet_client_problem(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    """Return why this is not a kubelet's request for a client certificate; "" if it is (``ValidateKubeletClientCSR``)."""
    names = _names(request)
    if _texts(request, NameOID.ORGANIZATION_NAME) != [NODES]:
        return "subject organization is not system:nodes"
    for type_, what in ((x509.DNSName, "DNS"), (x509.RFC822Name, "email"), (x509.IPAddress, "IP"), (x509.UniformResourceIdentifier, "URI")):
        if names.get(type_):
            return f"{what} subjectAltNames are not allowed"
    return _name_problem(request) or _usages_problem(usages, "client auth")


def kubelet_serving_problem(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    """Return why this is not a kubelet's request for a serving certificate; "" if it is (``ValidateKubeletServingCSR``)."""
    names = _names(request)
    if _texts(request, NameOID.ORGANIZATION_NAME) != [NODES]:
        return "subject organization is not system:nodes"
    if not names.get(x509.DNSName) and not names.get(x509.IPAddress):
        return "DNS or IP subjectAltName is required"
    if names.get(x509.RFC822Name):
        return "email subjectAltNames are not allowed"
    if names.get(x509.UniformResourceIdentifier):
        return "URI subjectAltNames are not allowed"
    return _usages_problem(usages, "server auth") or _name_problem(request)


def _name_problem(request: x509.CertificateSigningRequest) -> str:
    return "" if common_name(request).startswith(NODE_PREFIX) else f"subject common name does not begin with {NODE_PREFIX}"


def _usages_problem(usages: Collection[str], purpose: str) -> str:
    if set(usages) - {_ENCIPHERMENT} == {_SIGNATURE, purpose}:
        return ""
    return f"usages did not match [{' '.join(sorted((_SIGNATURE, _ENCIPHERMENT, purpose)))}]"


def client_problem(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    """Return why this is not a request for a client certificate; "" if it is."""
    for usage in usages:
        if usage not in (_SIGNATURE, _ENCIPHERMENT, "client auth"):
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"


SIGNERS: dict[str, Callable[[x509.CertificateSigningRequest, Collection[str]], str]] = {
    CLIENT: client_problem, KUBELET_CLIENT: kubelet_client_problem, KUBELET_SERVING: kubelet_serving_problem,
}  # fmt: skip


class Authority:
    """Signs with the certificate and key in two PEM files, read anew for each signature. ``clock`` is UTC."""

    def __init__(
        self, cert: Path, key: Path, clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    ) -> None:
        self._cert, self._key, self._clock = cert, key, clock

    def sign(self, request: x509.CertificateSigningRequest, usages: Sequence[str], seconds: int | None = None) -> bytes:
        """Return the certificate (PEM), valid for ``seconds`` but at most a year and no longer than the CA. Raises OSError and ValueError
        if there is no CA, or it has expired."""
        ca = x509.load_pem_x509_certificate(self._cert.read_bytes())
        key = private_key(self._key.read_bytes())
        now = self._clock()
        if now >= ca.not_valid_after_utc:
            raise ValueError(f"the signer has expired: NotAfter={ca.not_valid_after_utc}")
        life = LIFE if seconds is None else min(max(datetime.timedelta(seconds=seconds), SHORTEST), LIFE)
        end = now + (life if life < SHORT else life - BACKDATE)
        builder = (
            x509.CertificateBuilder().subject_name(request.subject).issuer_name(ca.subject).public_key(request.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - BACKDATE)
            .not_valid_after(min(end, ca.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )  # fmt: skip
        names = [name for of in _names(request).values() for name in of]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        uses = {_KEY_USAGES[u] for u in usages if u in _KEY_USAGES}
        if uses:
            builder = builder.add_extension(x509.KeyUsage(**{name: name in uses for name in _KEY_USAGE_FIELDS}), critical=True)
        extended = [_EXTENDED[u] for u in usages if u in _EXTENDED]
        if extended:
            builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
        for extension in ca.extensions:
            if isinstance(issuer := extension.value, x509.SubjectKeyIdentifier):  # a CA need not have one
                builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
