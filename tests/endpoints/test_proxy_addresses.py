"""Addresses that the proxy refuses, in every notation."""

from __future__ import annotations

import pytest

from kas.endpoints.proxy_locations import _check_ip
from kas.meta.errors import ApiError


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:255.255.255.255",
        "::127.0.0.1", "::169.254.169.254", "::7f00:1",
        "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::127.0.0.1",
        "2002:7f00:1::1", "2002:a9fe:a9fe::", "2001:0:7f00:1::1", "2001:0:808:808::5601:5601",
        "fe80::5efe:127.0.0.1", "2001:db8::5efe:127.0.0.1", "2001:db8::200:5efe:169.254.1.1",
        "fd00:ec2::254", "fd20:ce::254", "no address", "127.1",
    ],
)  # fmt: skip
def test_refused(address):
    with pytest.raises(ApiError) as e:
        _check_ip(address)
    assert e.value.code == 400


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "192.168.1.1", "8.8.8.8", "fd00::1", "2001:db8::1", "64:ff9b::8.8.8.8", "2002:808:808::1", "::ffff:10.0.0.1",
        "fd00:ec2::253",
    ],
)  # fmt: skip
def test_allowed(address):
    _check_ip(address)
