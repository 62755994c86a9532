"""What is hidden of a value before anybody sees it."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.domain.redaction import DEPTH_LIMIT, USUAL, Redactor
from holdfast.domain.secret_patterns import HIDDEN
from holdfast.domain.task.task import Failure, FailureKind

SECRET = [
    *("password", "Password", "db_password", "passwd", "passphrase", "pwd", "client-secret"),
    *("token", "accessToken", "X-Auth-Token", "api_key", "apiKey", "API-KEY", "apikey"),
    *("Authorization", "auth", "credentials", "private_key", "aws_access_key_id", "Set-Cookie"),
    *("pass", "db_pass", "DB_PASS", "dbPass", "AccountKey", "tokens", "access_tokens"),
    *("раssword", "pаsswоrd", "ѕесrеt", "ｐａｓｓｗｏｒｄ", "pässword", "pass\u200bword", "tоkеn"),
]
COUNTS = ["tokens", "total_tokens", "maxTokens", "prompt-tokens", "token_count", "tokens_used"]
PLAIN = [
    *("author", "key", "keyboard", "name", "pass_rate", "accessories", "", "público", "a_key"),
    *("compass", "bypass", "byPass1", "passenger", "passed", "signature", "имя", "пасс"),
]


@pytest.mark.parametrize("name", SECRET)
@pytest.mark.parametrize("value", ["hunter2", 7, None, ["hunter2"], {"a": "hunter2"}])
def test_the_value_of_a_field_that_is_named_like_a_secret_is_hidden(name: str, value: Any) -> None:
    if name.endswith("tokens") and value == 7:
        value = "7"
    assert USUAL.value({name: value, "to": "ann"}) == {name: HIDDEN, "to": "ann"}


@pytest.mark.parametrize("name", PLAIN)
def test_other_fields_are_shown(name: str) -> None:
    assert USUAL.value({name: "ann"}) == {name: "ann"}


@pytest.mark.parametrize("name", COUNTS)
def test_how_many_tokens_there_are_is_shown_where_nobody_has_declared_it(name: str) -> None:
    assert USUAL.value({name: 512}) == {name: 512}
    assert USUAL.value({name: "512 a"}) == {name: HIDDEN}
    assert Redactor([name]).value({name: 512}) == {name: HIDDEN}
    text = f"usage: {name}=512, more"
    assert Redactor().text(text) == text
    assert Redactor().text(f'{{"{name}": 512}}') == f'{{"{name}": 512}}'


def test_secrets_are_found_in_pairs_arguments_and_named_values() -> None:
    value = {
        "headers": [["Authorization", "x"], ("X-Api-Key", "x"), ["Accept", "y"]],
        "argv": ["mysql", "--password", "x", "--user", "ann", "--token=x"],
        "env": [{"name": "DB_PASSWORD", "value": "x"}, {"name": "PORT", "value": "80"}],
        "fields": ["password", "email"],
    }
    assert USUAL.value(value) == {
        "headers": [["Authorization", HIDDEN], ["X-Api-Key", HIDDEN], ["Accept", "y"]],
        "argv": ["mysql", "--password", HIDDEN, "--user", "ann", f"--token={HIDDEN}"],
        "env": [{"name": "DB_PASSWORD", "value": HIDDEN}, {"name": "PORT", "value": "80"}],
        "fields": ["password", "email"],
    }


def test_secrets_are_found_in_lists_and_objects() -> None:
    value = {"hosts": [{"name": "a", "login": {"password": "x"}}, [{"token": "y"}]], "n": 1.5}
    shown = {"hosts": [{"name": "a", "login": {"password": HIDDEN}}, [{"token": HIDDEN}]], "n": 1.5}
    assert USUAL.value(value) == shown


@pytest.mark.parametrize("value", ["password", 7, 1.5, True, None, [], {}])
def test_what_has_no_fields_is_shown_as_it_is(value: Any) -> None:
    assert USUAL.value(value) == value


def test_what_lies_too_deep_is_not_shown() -> None:
    value: Any = "at the bottom"
    for _ in range(100_000):
        value = [value]
    shown = USUAL.value(value)
    for _ in range(DEPTH_LIMIT + 1):
        [shown] = shown
    assert shown == HIDDEN


# -- by patterns

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE-abc\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
TEXTS = [
    ("redis://user:hunter2@host:6379/0 is down", "redis://user:***@host:6379/0 is down"),
    ("amqp://:hunter2@host", "amqp://:***@host"),
    ("amqp://u:hunter2@p@rts@host/v", "amqp://u:***@host/v"),
    ("Bearer hunter2.x-y", "Bearer ***"),
    ("Authorization: Basic aHVudGVyMg==", "Authorization: ***"),
    ("{'Authorization': 'Basic hunter2', 'n': 1}", "{'Authorization': '***', 'n': 1}"),
    ("Set-Cookie: id=hunter2; path=/", "Set-Cookie: ***"),
    ("password=hunter2, user=ann", "password=***, user=ann"),
    ("?api_key=hunter2&page=2", "?api_key=***&page=2"),
    ("DB_PASSWORD: hunter2", "DB_PASSWORD: ***"),
    ("password=\\hunter2", "password=***"),
    ('{"token": "hunter\\"2 x", "to": "ann"}', '{"token": ***, "to": "ann"}'),
    ("Login(secret='hunter2 x', to='ann')", "Login(secret=***, to='ann')"),
    ('"{\\"pwd\\": \\"hunter2 x\\", 1}"', '"{\\"pwd\\": ***, 1}"'),
    ('cut: {"password": "hunter2', 'cut: {"password": ***'),
    ("key AKIAIOSFODNN7EXAMPLE", "key ***"),
    (f"{PEM} rest", "*** rest"),
    (PEM[:-30], "***"),
    ("hf_a1b2_Abcdefgh-ijkl_mnop", "hf_a1b2_***"),
    ("signed with whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw today", "signed with *** today"),
    (f"jwt {JWT}.", "jwt ***."),
    ("sk-proj-abcdefghijklmnop", "***"),
    ("ghp_abcdefghijklmnopqrst", "***"),
    # options of commands
    ("run --password hunter2 --user ann", "run --password *** --user ann"),
    ("run --password=hunter2 x", "run --password=*** x"),
    ("run --db-password 'hunter 2' x", "run --db-password *** x"),
    ("run --token=hunter2", "run --token=***"),
    ("run --api-key hunter2", "run --api-key ***"),
    ("run --pass hunter2", "run --pass ***"),
    (
        "['run', '--password', 'hunter2', '--user', 'ann']",
        "['run', '--password', ***, '--user', 'ann']",
    ),
    ("docker login -u ann -p hunter2 host", "docker login -u ann -p *** host"),
    ("['login', '-p', 'hunter2']", "['login', '-p', ***]"),
    ("mysql -u root -phunter2 db", "mysql -u root -p*** db"),
    ("sshpass -phunter2 ssh h", "sshpass -p*** ssh h"),
    ("mysql -u root -p'hunter 2' db", "mysql -u root -p*** db"),
    ('sh -c "mysqldump -p"', 'sh -c "mysqldump -p"'),
    ("redis-cli -h host -a hunter2 ping", "redis-cli -h host -a *** ping"),
    ("['redis-cli', '-a', 'hunter2']", "['redis-cli', '-a', ***]"),
    ("curl -u ann:hunter2 https://h", "curl -u ann:*** https://h"),
    # XML
    ("<password>hunter2</password>", "<password>***</password>"),
    ("<ns:dbPassword x='1'>hunter 2</ns:dbPassword>", "<ns:dbPassword x='1'>***</ns:dbPassword>"),
    ("<token><![CDATA[hunter]2]]></token>", "<token>***]]></token>"),
    ("<pass>hunter2</pass>", "<pass>***</pass>"),
    ("<db.password x='1' value='hunter2'/>", "<db.password x='1' value=***/>"),
    ('<user name="ann" password="hunter2"/>', '<user name="ann" password=***/>'),
    ('<add key="DbPassword" value="hunter2"/>', '<add key="DbPassword" value=***/>'),
    ("&lt;password&gt;hunter2&lt;/password&gt;", "&lt;password&gt;***&lt;/password&gt;"),
    # pairs
    ("('password', 'hunter2')", "('password', ***)"),
    ('[("token", "hunter2"), ("n", "1")]', '[("token", ***), ("n", "1")]'),
    ("(b'x-api-key', b'hunter2')", "(b'x-api-key', b***)"),
    ("['Authorization', 'Basic hunter2']", "['Authorization', ***]"),
    ("('cut', ('password', 'hunt", "('cut', ('password', ***"),
    # short names
    ("pass=hunter2 x", "pass=*** x"),
    ("DB_PASS=hunter2", "DB_PASS=***"),
    ("dbPass=hunter2", "dbPass=***"),
    ("{'pass': 'hunter2'}", "{'pass': ***}"),
    ("pwd=hunter2", "pwd=***"),
    ("password%3Dhunter2", "password%3D***"),
    # signed URLs
    (
        "GET https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=abc123 x",
        "GET https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=*** x",
    ),
    ("https://h/k?X-Goog-Signature=ab%2Bc&a=1", "https://h/k?X-Goog-Signature=***&a=1"),
    (
        "https://a.blob.core.windows.net/c?se=1&sig=a%2Fb%3D&sp=r",
        "https://a.blob.core.windows.net/c?se=1&sig=***&sp=r",
    ),
    (
        "https://h/k?AWSAccessKeyId=x1&Signature=ab%3D&Expires=1",
        "https://h/k?AWSAccessKeyId=***&Signature=***&Expires=1",
    ),
    (
        "?next=https%3A%2F%2Fh%2F%3Fsig%3Dabc%26a%3D1",
        "?next=https%3A%2F%2Fh%2F%3Fsig%3D***%26a%3D1",
    ),
    (
        "DefaultEndpointsProtocol=https;AccountKey=aGk=;x=1",
        "DefaultEndpointsProtocol=https;AccountKey=***;x=1",
    ),
    # in the place of a user
    ("clone https://abc123@github.com/a/b", "clone https://***@github.com/a/b"),
    ("https://abcdefghijklmnop123:x-oauth-basic@h", "https://***:***@h"),
    ("redis://abcdefghijklmnopqrstuv@h", "redis://***@h"),
    # issued tokens
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "***"),
    ("ya29.a0AfH6SMBabcdefghijklmnop", "***"),
    (
        "https://api.telegram.org/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/getMe",
        "https://api.telegram.org/bot***/getMe",
    ),
    ("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "***"),
    ("xapp-1-A0123456789-abcdef", "***"),
    ("glpat-abcdefghij0123456789", "***"),
    ("rk_live_abcdefghij0123456789", "***"),
    ("SG.abcdefghijklmnopqrst.uvwxyzabcdefghijklmnop", "***"),
    ("https://hooks.slack.com/services/T0/B0/abcdef", "https://hooks.slack.com/services/***"),
    ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "***"),
    (f"hf_{'aB3' * 12}", "***"),
    (f"dop_v1_{'0a' * 32}", "***"),
    (f"shpat_{'0a' * 16}", "***"),
    (f"hvs.{'aB3' * 10}", "***"),
    (f"ATATT3{'aB3' * 10}", "***"),
    (f"lin_api_{'aB3' * 10}", "***"),
    (f"ntn_{'aB3' * 10}", "***"),
    (f"sq0csp-{'aB3' * 10}", "***"),
    (f"mail with key-{'0a' * 16}", "mail with ***"),
    (f"M{'aB3d' * 6}.GhIjKl.{'aB3' * 10}", "***"),
    (
        f"POST https://discord.com/api/webhooks/123456789/{'aB3' * 10}",
        "POST https://discord.com/api/webhooks/123456789/***",
    ),
    (f"signature: {'0a' * 32} is wrong", "signature: *** is wrong"),
    # letters that only look so
    ("раssword=hunter2, ann", "password=***, ann"),
    ("ｐａｓｓｗｏｒｄ＝hunter2", "password=***"),
    ("tоkеn: hunter2", "token: ***"),
    ("pass\u200bword=hunter2", "password=***"),
]
HARMLESS = [
    "http://host:80/x@y",
    "https://example.org/a?b=c",
    "KeyError: 'password'",
    "the token expired",
    "password=",
    "task-1234567890123456789 risk-abcdefghijklmnopqrst",
    "no bearer",
    "-----BEGIN PUBLIC KEY-----\nabc",
    "Grüße, 世界",
    "",
    "compass=north bypass=1 trespass: no",
    "first pass: 3 found, passed=2, pass_rate=0.5",
    "mkdir -p /var/lib; ssh -p 22 h; docker run -p 8080:80 -p 127.0.0.1:1:1 -pthread",
    "--password-file /run/p --no-cache x --tokens-file y",
    "the fields ('name', 'email') and ['user', 'age'] of <user>ann</user>",
    "ssh://git@github.com/a/b and postgres://ann@host/db, mail to ann@example.org",
    "at 12:30:45 on 2026-01-31T12:00:00Z, task 0199a0b2c3d47e5f:1",
    "?signal=9&design=x, signature: (a, b)",
    "max_tokens=4096 and {'total_tokens': 12}",
    "Пароль не подошёл: попробуйте ещё раз",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
]


@pytest.mark.parametrize(("text", "shown"), TEXTS)
def test_what_looks_like_a_secret_is_hidden_in_a_text(text: str, shown: str) -> None:
    assert Redactor().text(text) == shown
    assert Redactor().text(shown) == shown
    assert USUAL.value({"said": [text]}) == {"said": [shown]}


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_are_shown_as_they_are(text: str) -> None:
    assert Redactor().text(text) == text


def test_a_secret_in_a_name_is_hidden_too() -> None:
    assert USUAL.value({"redis://u:hunter2@h": 1}) == {"redis://u:***@h": 1}


HOSTILE = [
    *("a", "://", "://a:", "://:@", "-", "-----BEGIN PRIVATE KEY-----", "-----BEGIN A A A "),
    *("password", "password=", 'password="', 'password="\\', "password \t", "token=> ", "access "),
    *("bearer ", "authorization:'", "cookie=", "hf_", "hf_a_", "eyJ", "eyJaaaaa.", "sk-", "ghp_"),
    *(
        "AKIAA",
        '\\\\\\"',
        "private key",
        "--",
        "--password ",
        "--pass-",
        "-p ",
        "mysql -",
        "mysql -p'",
        "mysql ",
        "redis-cli -a ",
        "<password value=",
    ),
    *("curl -u ", "<password", "<password>", "<password><![CDATA[", "<password ", "&gt;password"),
    *("('password', ", "('password',", "['a.password", 'key="password" ', "pass=", "dbPass", "p"),
    *("https://", "https://a", "?sig=%", "&sig=", "?sig=%26", "1:", "123456:", "123456:a", "SG.a"),
    *(
        "M" * 24 + ".",
        "а",
        "раssword",
        "ﷺ",
        "e\u0301",
        "\u0301\u0323",
        "\u200b",
        "tokens=1",
        "token_",
    ),
]


def cost(text: str, times: int) -> float:
    """Return the processor time of a look at a text, the best of some."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        Redactor().text(text)
        spent.append(time.process_time() - began)
    return min(spent)


def check_is_linear(text: str) -> None:
    """Eight times the text takes eight times as long; what is not linear, 64 times and more."""
    small = max(cost(text[: len(text) // 8], times=3), 0.005)
    assert cost(text, times=1) < 32 * small or cost(text, times=3) < 32 * small


@pytest.mark.parametrize("part", HOSTILE)
@pytest.mark.parametrize("before", ["", 'token="'])
def test_a_hostile_text_takes_no_longer_than_its_length(before: str, part: str) -> None:
    check_is_linear(before + part * (200_000 // len(part)))


def test_a_megabyte_of_all_that_is_hostile_takes_no_longer_than_its_length() -> None:
    eighth = "".join(part * (125_000 // len(HOSTILE) // len(part)) for part in HOSTILE)
    check_is_linear(eighth * 8)


# -- what users add


@pytest.mark.parametrize(
    ("given", "hidden", "shown"),
    [
        ("ssn", ["ssn", "SSN", "s_s-n"], ["ssn2", "assn"]),
        ("*_pin", ["card_pin", "cardPin", "pin"], ["pinned"]),
        ("tax*", ["tax", "taxNumber", "TAX-ID"], ["syntax"]),
        ("a*b*c", ["abc", "a_x_b_y_c"], ["acb"]),
        ("iban[0-9]?", ["iban09"], ["iban7"]),
        ("--", [], ["", "-"]),
    ],
)
def test_names_may_be_added(given: str, hidden: list[str], shown: list[str]) -> None:
    redactor = Redactor(names=[given])
    assert redactor.value(dict.fromkeys(hidden, "x")) == dict.fromkeys(hidden, HIDDEN)
    assert redactor.value(dict.fromkeys(shown, "x")) == dict.fromkeys(shown, "x")
    assert redactor.value({"password": "x"}) == {"password": HIDDEN}


def test_patterns_may_be_added() -> None:
    redactor = Redactor(patterns=[r"\d{3}-\d{2}-\d{4}", "x*"])
    assert redactor.text("of 123-45-6789: xx, token=1") == "of ***: ***, token=***"


def test_our_own_records_are_searched_by_patterns_only() -> None:
    assert USUAL.value({"token": 5}) == {"token": HIDDEN}
    assert Redactor().strings({"token": 5, "said": "token=5"}) == {"token": 5, "said": "token=***"}


# -- stored bodies and errors


def test_a_stored_body_is_shown_without_its_secrets() -> None:
    assert Redactor().body(b'{"password":"x","to":["ann"]}') == {"password": HIDDEN, "to": ["ann"]}


@pytest.mark.parametrize(
    "body", [b"", b'{"password": "hunter2"', b'"\xff hunter2"', b"[" * 100_000]
)
def test_of_a_body_that_cannot_be_read_only_that_is_said(body: bytes) -> None:
    assert Redactor().body(body) == f"({len(body)} bytes that are no JSON)"


def test_an_error_is_shown_without_its_secrets() -> None:
    failure = Failure(
        kind=FailureKind.STAGE,
        error="ValueError",
        message="token=hunter2",
        stage="charge",
        attempt=2,
        at=1.0,
        traceback="File x\n  connect('db://u:hunter2@h')\n",
    )
    shown = Redactor().failure(failure)
    assert shown == replace(
        failure, message="token=***", traceback="File x\n  connect('db://u:***@h')\n"
    )
    assert shown.fingerprint == failure.fingerprint


PLAIN_VALUES = st.text() | st.binary() | st.floats() | st.integers() | st.none()
VALUES = st.recursive(
    PLAIN_VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner)
)


@given(VALUES)
def test_whatever_it_is_given_it_answers(value: Any) -> None:
    redactor = Redactor(names=["*x*"], patterns=["a?"])
    redactor.value(value)
    redactor.strings(value)
    redactor.text(str(value))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("input_value={'ssn': '123-45-6789'}, x=1", "input_value={'ssn': ***}, x=1"),
        ("ssn=123 and more", "ssn=*** and more"),
        ("a my_pin: 4455, done", "a my_pin: ***, done"),
        ('{"SSN": "1", "age": 2}', '{"SSN": ***, "age": 2}'),
        ("session=5, lesson: 3", "session=5, lesson: 3"),
    ],
)
def test_declared_names_are_hidden_in_texts_too(text: str, shown: str) -> None:
    assert Redactor(["ssn", "*_pin"]).text(text) == shown
