"""String formats: valid examples, and invalid ones that look similar."""

import pytest

from kas.meta.strfmt import FORMATS, is_known

RIGHT = {
    "bsonobjectid": ["507f1f77bcf86cd799439011", "507F1F77BCF86CD799439011"],
    "uri": ["http://a/b?c", "/a", "urn:x", "http://[::1]:80/"],
    "email": ["a@b", "Bob <a@b.c>", '"a b"@c', "x (c (d)) <a@b>", "<a@b>", "a@[1.2.3.4]", "ä@ö", '"B. C" <b@c>', "B. C. <b@c>"],
    "hostname": ["a.b.com", "foo", "ä.de", "1a.example.london", "☃.net"],
    "ipv4": ["1.2.3.4", "010.0.0.1", "::ffff:1.2.3.4"],
    "ipv6": ["::1", "::ffff:1.2.3.4", "2001:db8::"],
    "cidr": ["10.0.0.0/8", "::/0", "010.0.0.1/8"],
    "mac": ["01:23:45:67:89:ab", "01-23-45-67-89-AB-cd-ef", "0123.4567.89ab", ":".join(["00"] * 20)],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"],
    "uuid3": ["123e4567-e89b-32d3-0456-426614174000"],
    "uuid4": ["123e4567-e89b-42d3-a456-426614174000"],
    "uuid5": ["123e4567-e89b-52d3-a456-426614174000"],
    "isbn": ["0321751043", "978-0321751041"],
    "isbn10": ["0321751043", "080442957X"],
    "isbn13": ["978 0 321 75104 1"],
    "creditcard": ["4111 1111 1111 1111", "378282246310005"],
    "ssn": ["123-45-6789", "123 45 6789"],
    "hexcolor": ["#FFFFFF", "abc"],
    "rgbcolor": ["rgb(255, 0,17)"],
    "byte": ["AAE=", "AA==", "AAAA"],
    "password": ["", "x"],
    "date": ["2020-02-29"],
    "duration": ["1h2m", "-1.5s", "22 ns", "3 hours 2 mins", "1 wk", "0"],
    "datetime": ["2020-01-02T03:04:05Z", "2020-01-02t03:04:05.123+01:00", "2020-01-02T03:04:05,5Z"],
    "k8sshortname": ["a-b", "a" * 63],
    "k8slongname": ["a.b-c"],
}
WRONG = {
    "bsonobjectid": ["507f1f77bcf86cd79943901", "zz7f1f77bcf86cd799439011"],
    "uri": ["not a uri", "", "a/b", "http://a\n", "/%zz", "http://a:b/"],
    "email": ["", "a", "a@", "@b", "a b@c", "a..b@c", "a@b, c@d", "a@b x", "<a@b", "a@b.", '"a@b', "(a@b"],
    "hostname": ["", "-a", "a_b", "a.c0m1-", "a" * 64, "a." * 130 + "com", "a.b.", "a.1"],
    "ipv4": ["::1", "1.2.3", "256.0.0.1"],
    "ipv6": ["1.2.3.4", "::ffff:1.2.3.04", ":::"],
    "cidr": ["10.0.0.0", "10.0.0.0/33", "/8"],
    "mac": ["01:23-45:67:89:ab", "01:23:45", "0123.4567.89a", ""],
    "uuid": ["zzz", "123e4567-e89b-12d3-a456-42661417400", "123e4567-e89b-12d3-a456-426614174000\n"],
    "uuid4": ["123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-42d3-0456-426614174000"],
    "isbn": ["0321751044", "978-0321751042", "032175104"],
    "creditcard": ["4111 1111 1111 1112", "1234567812345670", ""],
    "ssn": ["123456789", "123-45-678"],
    "hexcolor": ["#FFFF", "ggg"],
    "rgbcolor": ["rgb(256,0,0)", "rgb(1,2)", "RGB(1,2,3)"],
    "byte": ["", "***", "AAE", "AAE=\n", "AA_-"],
    "date": ["2020-13-02", "2020-02-30", "2020-1-2", "2020-01-02T00:00:00Z", "20200-01-02"],
    "duration": ["", "5", "x", "1 y", "99999999999999999999 s", "1" * 1_000_000, "1 " * 500_000],
    "datetime": ["2020-01-02", "2020-01-02T24:00:00Z", "2020-01-02T03:04:05", "2020-01-02 03:04:05Z"],
    "k8sshortname": ["A", "a" * 64, "-a", "a.b"],
    "k8slongname": ["a..b", "a." * 127],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in RIGHT.items() for text in texts])
def test_valid(name, text):
    assert FORMATS[name](text)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_invalid(name, text):
    assert not FORMATS[name](text)


def test_every_format_has_examples():
    assert set(RIGHT) == set(FORMATS)
    assert set(FORMATS) - set(WRONG) == {"password", "uuid3", "uuid5", "isbn10", "isbn13"}


def test_formats_apply_to_their_types():
    assert is_known("string", "date-time") and is_known("integer", "int64") and is_known("number", "double") and is_known("", "ipv4")
    assert not is_known("string", "int64") and not is_known("array", "cidr") and not is_known("string", "bogus")
