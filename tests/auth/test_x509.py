"""Client certificates."""

from kas.auth.authn.x509 import ClientCertificate, Peer
from kas.auth.user import CREDENTIAL_ID
from tests.auth.headers import certificate, headers


def test_client_certificate():
    der = certificate("jane", ["dev", "ops"])
    auth = ClientCertificate()
    user = auth.authenticate(headers(), Peer(der, client_ca=True))
    assert (user.name, user.groups) == ("jane", ("dev", "ops"))
    assert user.extra[CREDENTIAL_ID][0].startswith("X509SHA256=")
    assert auth.authenticate(headers(), Peer(der, client_ca=False)) is None
    assert auth.authenticate(headers()) is None
