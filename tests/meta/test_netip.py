"""Addresses and prefixes as ``net/netip`` parses them, with its errors."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta.netip import parse_addr, parse_prefix


@given(st.ip_addresses())
def test_every_address_reads_back(address):
    ip, zone = parse_addr(str(address))
    assert (ip.number, ip.bits, zone) == (int(address), address.max_prefixlen, "")


@given(st.text(alphabet="0123456789abf.:%/g", max_size=12))
def test_it_accepts_the_same_addresses_as_ipaddress(text):
    try:
        want = int(ipaddress.ip_address(text))
    except ValueError:
        want = None
    try:
        found = parse_addr(text)[0].number
    except ValueError as e:
        assert str(e).startswith(f'ParseAddr("{text}"): ')
        found = None
    assert found == want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unable to parse IP"),
        ("abc", "unable to parse IP"),
        ("%eth0", "missing IPv6 address"),
        ("1.2.3", "IPv4 address too short"),
        ("1.2.3.4.5", "IPv4 address too long"),
        ("1.2.3.", 'IPv4 field must have at least one digit (at ".")'),
        ("1..2.3", 'IPv4 field must have at least one digit (at ".2.3")'),
        ("1.2.3.04", "IPv4 field has octet with leading zero"),
        ("1.2.3.256", "IPv4 field has value >255"),
        ("1.2.3.4/32", 'unexpected character (at "/32")'),
        ("1.2.3.x", 'unexpected character (at "x")'),
        ("::1%", "zone must be a non-empty string"),
        ("12345::", 'each group must have 4 or less digits (at "12345::")'),
        (":1", 'each colon-separated field must have at least one digit (at ":1")'),
        ("1:2:3", "address string too short"),
        ("1::2::3", 'multiple :: in address (at ":3")'),
        ("1:2:", 'colon must be followed by more characters (at ":")'),
        ("1:2/64", 'unexpected character, want colon (at "/64")'),
        ("1:2:3:4:5:6:7:8:9", 'trailing garbage after address (at "9")'),
        ("1:2:3:4::5:6:7:8", "the :: must expand to at least one field of zeros"),
        ("1:1.2.3.4", 'embedded IPv4 address must replace the final 2 fields of the address (at "1.2.3.4")'),
        ("1:2:3:4:5:6::1.2.3.4.5", "IPv4 address too long"),
        ("::ffff:1.2.3.400", "IPv4 field has value >255"),
    ],
)
def test_errors_of_addresses(text, why):
    with pytest.raises(ValueError) as caught:
        parse_addr(text)
    assert str(caught.value) == f'ParseAddr("{text}"): {why}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.0", "no '/'"),
        ("10.0.0/8", 'ParseAddr("10.0.0"): IPv4 address too short'),
        ("fe80::1%a/64", "IPv6 zones cannot be present in a prefix"),
        ("10.0.0.0/08", 'bad bits after slash: "08"'),
        ("10.0.0.0/", 'bad bits after slash: ""'),
        ("10.0.0.0/+8", 'bad bits after slash: "+8"'),
        ("10.0.0.0/9223372036854775808", 'bad bits after slash: "9223372036854775808"'),
        ("10.0.0.0/33", "prefix length out of range"),
        ("::/129", "prefix length out of range"),
    ],
)
def test_errors_of_prefixes(text, why):
    with pytest.raises(ValueError) as caught:
        parse_prefix(text)
    assert str(caught.value) == f'netip.ParsePrefix("{text}"): {why}'


def test_a_prefix_keeps_its_host_bits_and_an_address_its_zone():
    (ip, length), (_, zone) = parse_prefix("10.0.0.5/8"), parse_addr("fe80::1%eth0")
    assert (str(ip), length, zone) == ("10.0.0.5", 8, "eth0")
