"""The keys of a server with a full disk."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.auth import signingkey, tokens
from kas.auth.authn import AuthenticationError
from kas.auth.credentials import Credentials, ServiceAccountKeys
from kas.meta.errors import ApiError
from kas.preparation import prepare_later


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Limits the files of this process to a few bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def keys(tmp_path: Path) -> ServiceAccountKeys:
    return ServiceAccountKeys(["https://issuer"], tmp_path / "pki" / "sa.key", own=True)


def test_a_key_that_cannot_be_written_is_generated_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one generated in vain, which takes tenths of a second."""
    own = keys(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(signingkey, "_new_key", lambda: pytest.fail("a key was made"))
        with no_room(), pytest.raises(ApiError) as refused:
            _ = own.signer
    assert refused.value.code == 500
    assert refused.value.message == "Internal error occurred: the key of service-account tokens cannot be made: File too large"
    assert list((tmp_path / "pki").iterdir()) == []
    assert tokens.Verifier([own.signer.public_key()], ["https://issuer"]).claims(own.signer.sign({"iss": "https://issuer"}))
    assert [path.name for path in (tmp_path / "pki").iterdir()] == ["sa.key"]
    assert (tmp_path / "pki" / "sa.key").stat().st_mode & 0o777 == 0o600


def test_a_token_is_refused_while_no_key_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "admin.token").write_text("secret")
    own = keys(tmp_path)
    credentials = Credentials(tmp_path / "admin.token", "", own, ["https://issuer"], lambda resource, namespace, name: None, True)
    credentials.load()
    with no_room(), pytest.raises(AuthenticationError, match="the key of service-account tokens cannot be made"):
        credentials.authenticators.authenticate({"authorization": "Bearer e30.e30.e30"}.get)
    with pytest.raises(AuthenticationError, match="service account"):
        credentials.authenticators.authenticate({"authorization": f"Bearer {own.signer.sign({'iss': 'https://issuer'})}"}.get)  # type: ignore


def test_a_start_reports_an_unwritable_key_in_one_line(tmp_path: Path) -> None:
    class Raw:
        service_account_signing_key_file = service_account_signing_endpoint = ""

    class Options:
        data_dir, raw = tmp_path, Raw()

    said: list[str] = []
    with no_room():
        prepare_later(Options(), said.append)  # type: ignore[arg-type]
    assert said == [f"the key of service account tokens will be created with the first token: {tmp_path}/pki/sa.key: File too large"]
