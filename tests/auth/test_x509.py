"""Client certificates, read as users."""

import datetime
import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kas.auth.authn import AuthenticationError
from kas.auth.authn.x509 import UID_OID, Certificates, ClientCertificate, Peer, user_from_certificate
from kas.auth.user import CREDENTIAL_ID
from kas.config import features
from tests import pki
from tests.auth.headers import headers


class Authority:
    """Vouches for what is in ``good``; counts how often it is asked."""

    def __init__(self, *good: pki.Issued) -> None:
        self.good, self.asked = {g.der for g in good}, 0

    def check(self, certificates):
        self.asked += 1
        if certificates.chain[0] not in self.good:
            raise AuthenticationError("x509: certificate signed by unknown authority")


def peer(shown: pki.Issued, *pairs) -> Peer:
    return Peer(Certificates(shown.ders), lambda: pairs)


JANE = pki.issue([("O", "dev"), ("CN", "nobody"), ("O", "ops"), ("O", "dev"), ("OU", "x"), ("CN", "jane")], dns=["eve"])


def test_the_subject_is_the_user():
    user = ClientCertificate(Authority(JANE)).authenticate(headers(), peer(JANE))
    assert (user.name, user.uid) == ("jane", "")  # the last CN
    assert user.groups == ("dev", "ops", "dev", "system:authenticated")
    assert user.extra == {CREDENTIAL_ID: ["X509SHA256=" + hashlib.sha256(JANE.der).hexdigest()]}


def test_every_request_asks_whether_the_certificate_is_good():
    authority = Authority(JANE)
    auth = ClientCertificate(authority)
    shown = peer(JANE)
    assert auth.authenticate(headers(), shown) is auth.authenticate(headers(), shown)
    assert authority.asked == 2
    authority.good.clear()
    with pytest.raises(AuthenticationError):
        auth.authenticate(headers(), shown)


def test_without_a_certificate_there_is_nothing_to_say():
    assert ClientCertificate(Authority()).authenticate(headers()) is None


def test_uid():
    assert user_from_certificate(pki.issue([("CN", "a"), ("UID", "u-1")]).der).uid == "u-1"
    assert user_from_certificate(pki.issue([("CN", "a"), ("LDAPUID", "u-1")]).der).uid == ""


@pytest.mark.parametrize("subject", [[("O", "dev")], []])
def test_a_subject_without_a_name_is_not_an_error(subject):
    """So other authenticators are called; if none of them refuses it, the request is anonymous."""
    shown = pki.issue(subject)
    assert ClientCertificate(Authority(shown)).authenticate(headers(), peer(shown)) is None


@pytest.mark.parametrize("value", [("",), ("1", "")])
def test_a_certificate_with_an_invalid_uid_is_refused(value):
    uids = [x509.NameAttribute(x509.ObjectIdentifier(UID_OID), v, _validate=False) for v in value]
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a"), *uids])
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    shown = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now).sign(key, hashes.SHA256())
    with pytest.raises(AuthenticationError):
        user_from_certificate(shown.public_bytes(serialization.Encoding.DER))


def test_without_the_gate_a_subject_has_no_uid():
    with features.DEFAULT.overridden(AllowParsingUserUIDFromCertAuth=False):
        for uids in ([("UID", "u-1")], [("UID", "1"), ("UID", "2")]):
            assert user_from_certificate(pki.issue([("CN", "a"), *uids]).der).uid == ""


def test_a_certificate_with_two_uids_is_refused():
    with pytest.raises(AuthenticationError):
        user_from_certificate(pki.issue([("CN", "a"), ("UID", "1"), ("UID", "2")]).der)
