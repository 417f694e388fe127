"""IP addresses and networks as Go's parsers take them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta import ip, ipchecks


@given(st.ip_addresses())
def test_canonical_addresses_are_valid(address):
    text = str(address)
    mapped = getattr(address, "ipv4_mapped", None)
    assert bool(ipchecks.validate_ip("f", text)) == (mapped is not None)
    parsed = ip.parse_ip(text)
    assert parsed.number == int(address) and str(parsed) == str(mapped or address)


@given(st.ip_addresses(v=6).filter(lambda a: a.ipv4_mapped is None))
def test_other_notations_are_valid_but_not_canonical(address):
    text = address.exploded
    assert str(ip.parse_ip(text)) == str(address)
    if text != str(address):
        assert [e.detail for e in ipchecks.validate_ip("f", text)] == [f'must be in canonical form ("{address}")']
        assert ipchecks.ip_warnings("f", text) == [f'f: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")']


@given(st.text("0123456789abcf:./%"))
def test_it_agrees_with_the_library_on_strict_texts(text):
    try:
        want = ipaddress.ip_address(text)
    except ValueError:
        want = None
    strict = not ipchecks.validate_legacy_ip("f", text, strict=True)
    if strict:
        assert want is not None
    elif want is not None and getattr(want, "ipv4_mapped", None) is None:
        # The library accepts zone ids, the API does not.
        assert "%" in text
    ip.parse_cidr(text)


NO_ADDRESSES = ["", "1.2.3", "1.2.3.4.5", "256.1.1.1", "1::2::3", ":::", "1:", ":1", "1:2:3:4:5:6:7:8::", "1.2.3.4::", "::g"]


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_invalid_addresses(text):
    assert ip.parse_ip(text) is None


@pytest.mark.parametrize(
    ("text", "strict", "legacy"),
    [
        ("10.0.0.0/8", [], []),
        ("10.0.0.1/8", ["must not have bits set beyond the prefix length"], []),
        ("010.0.0.0/8", ["must not have leading 0s in IP or prefix length"], []),
        ("10.0.0.0/08", ["must not have leading 0s in IP or prefix length"], []),
        ("::ffff:1.2.3.0/120", ["must not have an IPv4-mapped IPv6 address"], []),
        ("10.0.0.0/33", ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"], None),
        ("2001:DB8::/64", ['must be in canonical form ("2001:db8::/64")'], []),
    ],
)
def test_cidrs(text, strict, legacy):
    assert [e.detail for e in ipchecks.validate_cidr("f", text)] == strict
    if legacy is not None:
        assert ipchecks.validate_legacy_cidr("f", text, strict=False) == legacy
    assert ipchecks.validate_legacy_cidr("f", text, old=[text]) == []


def test_interface_addresses_keep_the_host_bits():
    assert ipchecks.validate_interface_address("f", "10.0.0.1/8") == []
    assert [e.detail for e in ipchecks.validate_interface_address("f", "10.0.0.01/8")] == ['must be in canonical form ("10.0.0.1/8")']

    # Mapped addresses are printed as IPv4; a prefix length that fits IPv4 is kept.
    for text in ("::ffff:1.1.1.1/24", "::ffff:1.1.1.1/120"):
        assert [e.detail for e in ipchecks.validate_interface_address("f", text)] == ['must be in canonical form ("1.1.1.1/24")']


def test_cidr_warnings():
    assert ipchecks.cidr_warnings("f", "10.0.0.1/8") == [
        'f: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)'
    ]
    assert ipchecks.cidr_warnings("f", "10.0.0.0/8") == []
