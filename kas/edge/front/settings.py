"""Maps command-line flags to the front's TLS settings."""

from __future__ import annotations

from kas.config import ciphers
from kas.config.options import Completed
from kas.edge.front.tls import Pair, Settings


def settings(o: Completed) -> Settings:
    """The settings for the options; files that no flag names are those that the supervisor has made."""
    raw = o.raw
    chosen = ciphers.openssl(raw.tls_cipher_suites)
    authorities = [str(file) for file in o.client_cas]
    if raw.requestheader_client_ca_file:
        authorities.append(raw.requestheader_client_ca_file)
    cert, key = o.serving_pair
    return Settings(
        Pair(str(cert), str(key)),
        [_named(text) for text in raw.tls_sni_cert_key],
        authorities,
        # Only TLS 1.3 suites were chosen, so there is nothing to offer to older clients.
        tls13_only=o.tls_min == "tls1.3" or (bool(raw.tls_cipher_suites) and not chosen),
        http2=not raw.disable_http2_serving,
        ciphers=chosen,
        groups=ciphers.groups(raw.tls_curve_preferences),
    )


def _named(text: str) -> Pair:
    """Parses ``cert,key`` or ``cert,key:name,…``."""
    files, _, names = text.partition(":")
    cert, _, key = files.partition(",")
    return Pair(cert, key, tuple(n for n in names.split(",") if n))
