"""Invalid values of authentication flags."""

import pytest

from kas.config import authentication
from kas.config.options import read

TOGETHER = "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
ISSUER = ["--oidc-issuer-url=https://x", "--oidc-client-id=c"]
HOOK = "--authentication-token-webhook-config-file=x"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([*ISSUER, "--oidc-signing-algs=HS256"], ['oidc: unsupported signing alg: "HS256"']),
        ([*ISSUER, "--oidc-signing-algs=RS256,PS512,ES384"], []),
        ([*ISSUER, "--authentication-config=x"], ["authentication-config file and oidc-* flags are mutually exclusive"]),
        (["--oidc-username-claim=email"], [TOGETHER]),
        (["--oidc-issuer-url=https://x"], [TOGETHER]),
        (["--oidc-username-claim=sub"], [TOGETHER]),  # set, if only by default
        (["--oidc-username-claim=sub", "--authentication-config=x"],
         ["authentication-config file and oidc-* flags are mutually exclusive"]),
        ([HOOK, "--authentication-token-webhook-version=v2"],
         ['unsupported authentication webhook version "v2", supported versions are "v1", "v1beta1"']),
        (["--authentication-token-webhook-version=v2"], []),  # without a webhook
        ([HOOK], []),
    ],
)  # fmt: skip
def test_invalid_values(flags, says):
    options, errors = read(flags)
    assert list(authentication.problems(options)) == says and set(says) <= set(errors)
