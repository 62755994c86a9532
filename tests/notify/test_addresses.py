"""Which URLs may be told anything, and which addresses they may lead to."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import InvalidInput, UrlRefused
from holdfast.notify.addresses import Allowed, Target, is_public

NONE = Allowed()


def refusal(url: str, allowed: Allowed = NONE) -> str:
    with pytest.raises(UrlRefused) as caught:
        allowed.check_url(url)
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://a.example", Target("https", "a.example", 443, "/")),
        ("https://a.example/p/q?r=s&t=%20u", Target("https", "a.example", 443, "/p/q?r=s&t=%20u")),
        ("https://a.example?r=s", Target("https", "a.example", 443, "/?r=s")),
        ("HTTPS://A.Example:8443/P", Target("https", "a.example", 8443, "/P")),
        ("https://a.example/u@h:?x=//b@c", Target("https", "a.example", 443, "/u@h:?x=//b@c")),
        ("https://xn--bcher-kva.example/", Target("https", "xn--bcher-kva.example", 443, "/")),
        ("https://my_service/", Target("https", "my_service", 443, "/")),
        ("https://3com.a1/", Target("https", "3com.a1", 443, "/")),
        ("https://8.8.8.8/", Target("https", "8.8.8.8", 443, "/")),
        ("https://[2606:4700:0::1111]:444/", Target("https", "2606:4700::1111", 444, "/")),
    ],
)
def test_a_url_is_read_into_the_parts_that_are_used(url: str, target: Target) -> None:
    assert NONE.target(url) == target
    assert NONE.check_url(url) == url


@pytest.mark.parametrize(
    ("target", "authority"),
    [
        (Target("https", "a.example", 443, "/"), "a.example"),
        (Target("http", "a.example", 443, "/"), "a.example:443"),
        (Target("https", "2606:4700::1111", 443, "/"), "[2606:4700::1111]"),
        (Target("https", "2606:4700::1111", 444, "/"), "[2606:4700::1111]:444"),
    ],
)
def test_the_host_header_has_a_port_where_it_is_not_the_usual(
    target: Target, authority: str
) -> None:
    assert target.authority == authority


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "printable"),
        ("a.example/p", "https://"),
        ("//a.example/p", "https://"),
        ("ftp://a.example/", "https://"),
        ("file:///etc/passwd", "https://"),
        ("unix:///run/docker.sock", "https://"),
        ("https:/a.example/", "https://"),
        ("https:a.example", "https://"),
        (" https://a.example/", "printable"),
        ("https://a.example/\n", "printable"),
        ("https://a.example/\r\nx: y", "printable"),
        ("https://a.exam\tple/", "printable"),
        ("https://a.example/\x00", "printable"),
        ("https://a.example/\x7f", "printable"),
        ("https://bücher.example/", "printable"),
        ("https://a。example/", "printable"),
        ("https://①②⑦.0.0.1/", "printable"),
        ("https://a.example\\@10.0.0.1/", "backslash"),
        ("https:\\\\a.example/", "backslash"),
        ("https://a.example/\\..", "backslash"),
        ("https://a.example/#part", "fragment"),
        ("https://a.example#@10.0.0.1/", "fragment"),
        ("https://user@a.example/", "user info"),
        ("https://user:pass@a.example/", "user info"),
        ("https://@a.example/", "user info"),
        ("https://a.example:80@10.0.0.1/", "user info"),
        ("https:///path", "cannot be read"),
        ("https://:443/", "cannot be read"),
        ("https://a.example:/", "cannot be read"),
        ("https://a.example:0/", "cannot be read"),
        ("https://a.example:00443/", "cannot be read"),
        ("https://a.example:+443/", "cannot be read"),
        ("https://a.example:443:443/", "cannot be read"),
        ("https://a.example:x/", "cannot be read"),
        ("https://a.example:65536/", "65535"),
        ("https://a.example:123456/", "cannot be read"),
        ("https://a%2eexample/", "cannot be read"),
        ("https://a,b/", "cannot be read"),
        ("https://a;b/", "cannot be read"),
        ("https://a.example./", "neither a DNS name"),
        ("https://127.0.0.1./", "neither a DNS name"),
        ("https://.a.example/", "neither a DNS name"),
        ("https://a..example/", "neither a DNS name"),
        ("https://-a.example/", "neither a DNS name"),
        ("https://a-.example/", "neither a DNS name"),
        (f"https://{'a' * 64}.example/", "neither a DNS name"),
        (f"https://{'a.' * 130}example/", "neither a DNS name"),
        ("https://2130706433/", "neither a DNS name"),
        ("https://0x7f000001/", "neither a DNS name"),
        ("https://0x7f.1/", "neither a DNS name"),
        ("https://127.0x1/", "neither a DNS name"),
        ("https://127.0.0.0x/", "neither a DNS name"),
        ("https://017700000001/", "neither a DNS name"),
        ("https://0177.0.0.1/", "neither a DNS name"),
        ("https://127.1/", "neither a DNS name"),
        ("https://8.8.8.08/", "neither a DNS name"),
        ("https://8.8.8.8.8/", "neither a DNS name"),
        ("https://8.8.8.256/", "neither a DNS name"),
        ("https://a.1/", "neither a DNS name"),
        ("https://[::1%25eth0]/", "cannot be read"),
        ("https://[fe80::1%eth0]/", "cannot be read"),
        ("https://[8.8.8.8]/", "neither a DNS name"),
        ("https://[::g]/", "cannot be read"),
        ("https://[:::]/", "neither a DNS name"),
        ("https://[2606:4700::1111/", "cannot be read"),
        ("https://2606:4700::1111/", "cannot be read"),
        ("https://[v1.x]/", "cannot be read"),
        ("https://a.example/" + "x" * 2000, "2018 characters"),
    ],
)
def test_a_url_that_two_readers_could_read_differently_is_refused(url: str, reason: str) -> None:
    assert reason in refusal(url)
    assert refusal(url, Allowed.parse("a.example,127.0.0.1,0.0.0.0/0")) == refusal(url)


def test_a_refusal_shows_neither_path_nor_query_nor_password() -> None:
    for url in (
        "http://a.example/hidden?hidden",
        "https://10.0.0.1/hidden?hidden",
        "https://hidden:hidden@a.example/hidden",
        "https://a.example/hidden#hidden",
        "https://a.example:hidden/",
    ):
        assert "hidden" not in refusal(url)


def test_plain_http_is_refused_unless_the_host_is_allowed() -> None:
    assert refusal("http://a.example/") == (
        "http://a.example: https is needed, unless the host is allowed"
    )
    assert refusal("http://8.8.8.8/")
    assert Allowed.parse("a.example").check_url("http://a.example:81/")
    assert Allowed.parse("A.Example:81").check_url("http://a.example:81/")
    assert refusal("http://a.example:82/", Allowed.parse("a.example:81"))
    assert refusal("http://b.a.example/", Allowed.parse("a.example"))
    assert Allowed.parse("8.8.8.8").check_url("http://8.8.8.8/")


def test_a_network_allows_plain_http_to_addresses_and_not_to_names() -> None:
    network = Allowed.parse("10.1.0.0/16, fd00::/8")
    assert network.check_url("http://10.1.2.3:8080/")
    assert network.check_url("https://10.1.2.3/")
    assert network.check_url("http://[fd12::1]/")
    assert network.check_url("http://[::ffff:10.1.2.3]/")
    assert refusal("http://a.example/", network)
    assert refusal("http://10.2.0.1/", network)
    target = network.target("https://a.example/")
    network.check_addresses(target, [ip_address("10.1.2.3"), ip_address("8.8.8.8")])
    with pytest.raises(UrlRefused):
        network.check_addresses(target, [ip_address("10.1.2.3"), ip_address("10.2.0.1")])


def test_a_host_that_is_allowed_may_be_at_any_address() -> None:
    allowed = Allowed.parse("hooks.internal:8080,[::1]:8080")
    private = [ip_address("10.0.0.1"), ip_address("fd00::1")]
    allowed.check_addresses(allowed.target("http://hooks.internal:8080/"), private)
    with pytest.raises(UrlRefused):
        allowed.check_addresses(allowed.target("https://hooks.internal/"), private)
    assert allowed.check_url("http://[0:0::1]:8080/")
    assert refusal("https://[::1]/", allowed)


def test_an_address_that_is_allowed_as_a_host_allows_no_name_that_leads_to_it() -> None:
    allowed = Allowed.parse("10.0.0.1")
    assert allowed.check_url("http://10.0.0.1/")
    with pytest.raises(UrlRefused):
        allowed.check_addresses(allowed.target("https://a.example/"), [ip_address("10.0.0.1")])


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "a.localhost"])
def test_this_machine_is_refused_by_its_name_too(host: str) -> None:
    assert "this machine" in refusal(f"https://{host}/")
    assert Allowed.parse(host).check_url(f"http://{host}/")
    assert Allowed.parse("127.0.0.0/8").check_url(f"https://{host}/")
    assert refusal(f"http://{host}/", Allowed.parse("127.0.0.0/8"))


NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254
    169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.170 192.0.2.1
    192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1
    239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:a9fe:a9fe ::ffff:0:127.0.0.1
    64:ff9b::10.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::8.8.8.8 100::1 2001::1 2001:2::1 2001:10::1
    2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe:: 3fff::1 5f00::1 fc00::1
    fd00:ec2::254 fdff::1 fe80::1 febf::1 fec0::1 ff02::1 ff0e::1 4000::1 fe80::1%1
""".split()
PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0
    198.17.255.255 198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1
    2001:200::1 2001:4860:4860::8888 2606:4700::1111 2a00:1450::1
""".split()


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(text: str) -> None:
    assert not is_public(ip_address(text))
    with pytest.raises(UrlRefused, match="not public"):
        NONE.check_addresses(NONE.target("https://a.example/"), [ip_address(text)])
    if "%" not in text:
        shown = f"[{text}]" if ":" in text else text
        assert "not public" in refusal(f"https://{shown}/")


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_let_through(text: str) -> None:
    assert is_public(ip_address(text))


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_pythons_own_judgement_is_never_stricter(address: IPv4Address) -> None:
    assert address.is_global or not is_public(address)


@given(st.integers(2**125, 2**126 - 1).map(IPv6Address))
def test_pythons_own_judgement_is_never_stricter_about_the_new_ones(address: IPv6Address) -> None:
    tunnelled = address in IPv6Network("2002::/16")
    assert address.is_global or tunnelled or not is_public(address)


def test_words_may_come_in_one_line_or_many() -> None:
    for words in ("a.example, 10.0.0.0/8 ,", ["a.example", " 10.0.0.0/8", ""]):
        allowed = Allowed.parse(words)
        assert allowed.check_url("http://a.example/")
        assert allowed.check_url("http://10.0.0.1/")
    assert refusal("http://a.example/", Allowed.parse(""))


@pytest.mark.parametrize(
    "word",
    [
        *["http://a.example", "a.example/path", "*.example", "a.example:", "a.example:0"],
        *["a.example:65536", "a.example:port", "user@a.example", "a example", "a.example."],
        *["10.1.0.1/16", "10.1.0.0/33", "10.1/16", "::1", "[::1", "[10.0.0.1]", "fe80::1%eth0"],
        *[
            "127.1",
            "0x7f.1",
            "2130706433",
            "bücher.example",
            "\u212a.example",
            "a_b-.example",
            "-a",
        ],
    ],
)
def test_a_word_that_cannot_be_allowed_is_named(word: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Allowed.parse(["good.example", word])
    assert repr(word) in str(caught.value)
