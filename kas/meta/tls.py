"""What a certificate of a server has to be for a client in Go."""

from __future__ import annotations

import ssl


def trust_as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context, believing what crypto/x509 does: a certificate that is trusted need not be an authority's, extensions that RFC 5280
    wants of certificates may be missing (from Python 3.13 on a default context asks for them), and a server's names are its subject
    alternative ones, not the subject's common name."""
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    return context
