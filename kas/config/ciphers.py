"""Names of cipher suites and key exchanges: Go's names and IANA's numbers, which flags use, and OpenSSL's names."""

from __future__ import annotations

from collections.abc import Sequence

# The suites of TLS 1.3, which are always offered, as in Go.
TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_CIPHERS = {
    "AES_128_CBC_SHA": "AES128-SHA", "AES_256_CBC_SHA": "AES256-SHA", "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256", "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}  # fmt: skip
_CHACHA = {"CHACHA20_POLY1305": "CHACHA20-POLY1305", "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305"}
_KEYS = {"TLS_RSA_WITH_": "", "TLS_ECDHE_RSA_WITH_": "ECDHE-RSA-", "TLS_ECDHE_ECDSA_WITH_": "ECDHE-ECDSA-"}
# Go's name -> OpenSSL's, for TLS 1.2; "" for suites that Go knows and OpenSSL no longer offers.
TLS12 = {
    **{key + cipher: prefix + name for key, prefix in _KEYS.items() for cipher, name in _CIPHERS.items()},
    **{key + cipher: prefix + name for key, prefix in _KEYS.items() if prefix for cipher, name in _CHACHA.items()},
    **dict.fromkeys((
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA", "TLS_RSA_WITH_RC4_128_SHA", "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA", "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    ), ""),
}  # fmt: skip
# The key exchanges of Go 1.26 by their IANA numbers, in Go's order of preference, which the flag's order does not change.
GROUPS = {
    4588: "X25519MLKEM768", 4587: "SecP256r1MLKEM768", 4589: "SecP384r1MLKEM1024", 29: "X25519", 23: "P-256", 24: "P-384", 25: "P-521",
}  # fmt: skip
MOST_GROUP = 65535


def problem(name: str) -> str:
    """Return the error for a suite's name in kube-apiserver's words; "" for a known one."""
    return "" if name in TLS13 or name in TLS12 else f"Cipher suite {name} not supported or doesn't exist"


def openssl(names: list[str]) -> list[str]:
    """Return OpenSSL's names of the TLS 1.2 suites that it has, in the given order."""
    return [TLS12[name] for name in names if TLS12.get(name)]


def groups_problem(numbers: Sequence[int]) -> str:
    """Return the error for ``--tls-curve-preferences`` in kube-apiserver's words; "" if it is valid."""
    seen = set[int]()
    for number in numbers:
        if not 0 < number <= MOST_GROUP:
            return f"curve preference {number} is out of range (must be 1-{MOST_GROUP})"
        if number in seen:
            return f"duplicate curve preference {number}"
        seen.add(number)
        if number not in GROUPS:
            return f"curve preference {number} is not supported by the current Go version"
    return ""


def groups(numbers: Sequence[int]) -> list[str]:
    """Return OpenSSL's names of the key exchanges, the preferred one first."""
    return [name for number, name in GROUPS.items() if number in numbers]
