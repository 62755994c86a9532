"""What is hidden of a value before anybody sees it."""

from typing import Any

import pytest

from holdfast.domain.redaction import DEPTH_LIMIT, HIDDEN, redacted

SECRET = [
    *("password", "Password", "db_password", "passwd", "passphrase", "pwd", "client-secret"),
    *("token", "accessToken", "X-Auth-Token", "api_key", "apiKey", "API-KEY", "apikey"),
    *("Authorization", "auth", "credentials", "private_key", "aws_access_key_id", "Set-Cookie"),
]
PLAIN = ["author", "key", "keyboard", "name", "pass_rate", "accessories", "", "público", "a_key"]


@pytest.mark.parametrize("name", SECRET)
@pytest.mark.parametrize("value", ["hunter2", 7, None, ["hunter2"], {"a": "hunter2"}])
def test_the_value_of_a_field_that_is_named_like_a_secret_is_hidden(name: str, value: Any) -> None:
    assert redacted({name: value, "to": "ann"}) == {name: HIDDEN, "to": "ann"}


@pytest.mark.parametrize("name", PLAIN)
def test_other_fields_are_shown(name: str) -> None:
    assert redacted({name: "ann"}) == {name: "ann"}


def test_secrets_are_found_in_lists_and_objects() -> None:
    value = {"hosts": [{"name": "a", "login": {"password": "x"}}, [{"token": "y"}]], "n": 1.5}
    shown = {"hosts": [{"name": "a", "login": {"password": HIDDEN}}, [{"token": HIDDEN}]], "n": 1.5}
    assert redacted(value) == shown


@pytest.mark.parametrize("value", ["password", 7, 1.5, True, None, [], {}])
def test_what_has_no_fields_is_shown_as_it_is(value: Any) -> None:
    assert redacted(value) == value


def test_what_lies_too_deep_is_not_shown() -> None:
    value: Any = "at the bottom"
    for _ in range(100_000):
        value = [value]
    shown = redacted(value)
    for _ in range(DEPTH_LIMIT + 1):
        [shown] = shown
    assert shown == HIDDEN
