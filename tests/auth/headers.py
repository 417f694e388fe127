"""What authenticators read."""


def headers(**given):
    """A request's ``get`` over these headers."""
    return {k.replace("_", "-"): v for k, v in given.items()}.get


def certificate(name, orgs):
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    attrs = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, o) for o in orgs]
    subject = x509.Name([*attrs, x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    day = datetime.datetime(2024, 1, 1)
    cert = x509.CertificateBuilder(subject, subject, key.public_key(), 1, day, day + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    return cert.public_bytes(serialization.Encoding.DER)
