"""What an authorizer is asked, and how a refusal reads."""

from kas.auth.attributes import Attributes, forbidden
from kas.auth.user import UserInfo


def test_refusal_is_harmless_for_browsers():
    e = forbidden(Attributes(UserInfo("<b>"), "get", resource_request=False, path="/a&b"), "why")
    assert e.message == 'forbidden: User "&lt;b&gt;" cannot get path "/a&amp;b": why'
    assert e.details == {}
