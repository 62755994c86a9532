"""Patterns of secrets in a text; the time that each takes is linear in the length of the text.

A hostile text must not slow down the program that shows it. So each pattern begins at a fixed word
and never scans the same text twice: it has possessive parts, bounds, and no two parts that could
share a character. No group is possessive: before Python 3.11.5 it may lose what it has matched.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

HIDDEN = "***"


class Rule(msgspec.Struct, frozen=True):
    """A pattern, tried only on texts that contain one of its ``hints``, which are in lower case."""

    hints: tuple[str, ...]
    pattern: str
    shown: str = HIDDEN


def _rule(hints: str, pattern: str, shown: str = HIDDEN) -> Rule:
    return Rule(tuple(hints.split()), pattern, shown)


def _rule_after(hints: str, pattern: str) -> Rule:
    """Return a rule that keeps the first group of its pattern and hides what follows."""
    return _rule(hints, pattern, rf"\1{HIDDEN}")


@cache  # one for each rule
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use: a command that never uses one starts a tenth sooner."""
    return re.compile(pattern, re.ASCII | re.IGNORECASE)


_QUOTE = r"""(?:\\{0,7}["'])"""
BETWEEN = rf"{_QUOTE}?[ \t]{{0,8}}(?:=>|[:=]|%3[ad])[ \t]{{0,8}}"
_QUOTED = (
    r"""(?:"(?:[^"\\]|\\.)*"?"""  # the end may have been cut off
    r"""|'(?:[^'\\]|\\.)*'?"""
    r"""|\\{1,7}"[^"]*+"?)"""  # in JSON within JSON
)
_SHOWN = r"(?!\*{3}(?!\w))"  # it was hidden before
VALUE = rf"""(?:b?{_QUOTED}|{_SHOWN}[^\s,;&"']++)"""

# "tokens" with a number is how many there are, as those who call language models write it.
_COUNTED = r"(?:s|s?[-_]?(?:count|limit|used|usage|total|budget))"
_TOKEN = rf"token(?!{_COUNTED}{BETWEEN}[0-9]{{1,15}}(?![\w-]))"
_WORDS = (
    rf"(?:passw(?:or)?d|passphrase|pwd|secret|{_TOKEN}|credential"
    r"|(?:api|access|account|private|signing)[-_. ]?key)"
)
_HEADERS = r"(?:authorization|cookie)"
_PASS = r"(?:(?<![a-z])pass|(?-i:(?<=[a-z])Pass))"  # a whole word: no compass, no bypass
_WORD_HINTS = "passw passphrase pwd secret token key credential"
_FLAG_ENDS = r"(?![\w-]{0,20}(?:file|path|stdin|env|command|prompt|name|ttl|type|url))"
_MYSQL = r"(?:mysql|mariadb|sshpass|mysqldump|mysqladmin)"

_GIVEN = (  # a name and its value, however they are put side by side
    _rule_after(
        "authorization cookie",  # the rest of the line: a scheme and more, or several cookies
        rf"""({_HEADERS}[\w-]{{0,40}}+{BETWEEN}{_QUOTE}?)[^\s"'\\][^"'\r\n\\]*+""",
    ),
    _rule_after("bearer", r"""\b(bearer[ \t]{1,8})[^\s"',;\\]++"""),
    _rule_after(
        f"{_WORD_HINTS} auth cookie pass",  # ('password', 'x') and [b'token', b'x']
        rf"""([(\[][ ]{{0,4}}b?["'](?:[\w.-]{{0,40}}?(?:{_WORDS}|{_HEADERS})[\w-]{{0,40}}+"""
        rf"""|pass|auth)["'],[ ]{{0,4}}b?){_QUOTED}(?=[ ]{{0,4}}[)\],]|\Z)""",
    ),
    _rule_after(_WORD_HINTS, rf"({_WORDS}[\w-]{{0,40}}+{BETWEEN}){VALUE}"),
    _rule_after("pass", rf"({_PASS}(?:=>?|%3d|{_QUOTE}[ \t]{{0,8}}[:=][ \t]{{0,8}})){VALUE}"),
    _rule_after(
        "--",  # --password x, and '--password', 'x' as lists of arguments are written
        rf"""((?<![\w-])--[\w-]{{0,40}}?(?:{_WORDS}|(?<![a-z])pass(?![a-z])){_FLAG_ENDS}[\w-]{{0,20}}+"""
        rf"""(?:["'],[ ]{{0,4}}|[ \t]{{1,8}}))(?![-|\[<(])(?:{_QUOTED}|{_SHOWN}[^\s"']++)""",
    ),
    _rule_after(
        "-p",  # no number (a port), no path, no further option
        r"""((?<![\w-])-p(?:["'],[ ]{0,4}|[ \t]{1,8}|=))(?![-|\[<(./~])(?![\d:.]{1,30}(?![\w]))"""
        rf"""(?:{_QUOTED}|{_SHOWN}[^\s"'/]++(?![^\s"']))""",
    ),
    _rule_after(
        "mysql mariadb sshpass",
        rf"""(\b{_MYSQL}\b[^\n;|&]{{0,200}}?["' \t]-p)"""
        r"""(?:(?![ \t"'-])[^\s"',]++|"[^\s"',][^"\n]*+"?|'[^\s"',][^'\n]*+'?)""",
    ),
    _rule_after(
        "redis-cli",
        rf"""(\bredis-cli\b[^\n;|&]{{0,200}}?["' \t]-a(?:["'],[ ]{{0,4}}|[ \t]{{1,8}}))"""
        rf"""(?:{_QUOTED}|{_SHOWN}[^\s"']++)""",
    ),
    _rule_after(
        "curl wget",
        r"""(\b(?:curl|wget)\b[^\n;|&]{0,200}?["' \t](?:-u|--user|--proxy-user)"""
        r"""(?:["'],[ ]{0,4}|[ \t]{1,8}|=)["']?[^\s:"']{0,100}+:)[^\s"']++""",
    ),
    _rule_after(
        f"{_WORD_HINTS} pass",  # <password>x</password>
        rf"(<[\w:.-]{{0,40}}?(?:{_WORDS}[\w:.-]{{0,40}}|(?<=[<:])pass)(?:\s[^<>]{{0,200}})?>\s{{0,8}})"
        r"(?![\s<](?!!))(?:<!\[CDATA\[(?:[^\]]++|\](?!\]>))*|(?!\*{3})[^<\s][^<]*+)",
    ),
    _rule_after(
        f"{_WORD_HINTS} pass",  # the same, escaped
        rf"({_WORDS}[\w:.-]{{0,40}}+&gt;)[^&<\s][^&<]*+",
    ),
    _rule_after(
        _WORD_HINTS,  # <db.password value="x"/>
        rf"""(<[\w:.-]{{0,40}}?{_WORDS}[\w:.-]{{0,40}}\s[^<>]{{0,200}}?\bvalue\s{{0,4}}=\s{{0,4}})"""
        rf"""{_QUOTED}""",
    ),
    _rule_after(
        _WORD_HINTS,  # <add key="Password" value="x"/>
        rf"""(\b(?:key|name)\s{{0,4}}=\s{{0,4}}["'][\w:. -]{{0,40}}?{_WORDS}[\w:. -]{{0,40}}["']"""
        rf"""\s{{1,8}}value\s{{0,4}}=\s{{0,4}}){_QUOTED}""",
    ),
)
_URLS = (
    _rule(  # what is as long as a token, with a password that says nothing
        "://", r'(?<=://)[^\s/:@"<>]{16,}+(?=:[^\s/"<>]*@)'
    ),
    _rule("://", r'(?<=://)([^\s/:@"<>]*+):[^\s/"<>]*@', rf"\1:{HIDDEN}@"),
    _rule(
        "http",
        r'(?<=http://)[^\s/:@"<>]{1,2000}+@|(?<=https://)[^\s/:@"<>]{1,2000}+@',
        f"{HIDDEN}@",
    ),
    _rule("://", r'(?<=://)[^\s/:@"<>]{20,2000}+@', f"{HIDDEN}@"),
    _rule_after(
        "sig",  # of AWS, Google, Azure and others
        r"((?:[?&;]|%3f|%26)(?:x-[a-z]{2,8}-signature|signature|sig|hmac)(?:=|%3d))"
        r"""(?:[^\s&"'<>#%]++|%(?!26|22))+""",
    ),
    _rule_after("signature", r"(\bsignature ?[=:] ?)[0-9a-f]{32,}+"),
    _rule_after("hooks.slack.com", r"(\bhooks\.slack\.com/(?:services|workflows)/)[\w/+-]++"),
    _rule_after("/webhooks/", r"(/api/webhooks/[0-9]{5,25}/)[\w-]{20,}+"),
)
_ISSUED = (  # by their form, wherever they stand
    _rule(
        "private",
        r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY[A-Z0-9 ]{0,40}-----"
        r"(?s:.*?)(?:-----END [A-Z0-9 ]{0,60}-----|\Z)",
    ),
    _rule_after("hf_", r"\b(hf_[a-z0-9]{1,64}+_)[\w-]{8,}+"),
    _rule("hf_", r"\bhf_[a-z0-9]{30,}+"),
    _rule("whsec_", r"\bwhsec_[\w+/=-]{8,}+"),
    _rule("eyj", r"(?<![\w-])eyJ[\w-]{5,}+\.[\w-]++\.[\w-]*+"),
    _rule("akia asia", r"(?<![a-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![a-z0-9])"),
    _rule("aiza", r"(?<![\w-])AIza[\w-]{35,}+"),
    _rule("ya29. gocspx- 1//0", r"(?<![\w-])(?:ya29\.|GOCSPX-|1//0)[\w-]{20,}+"),
    _rule("sk- sk_ rk_", r"(?<![\w-])(?:sk[-_]|rk_(?:live|test)_)[\w-]{16,}+"),
    _rule("gh github_ xox", r"\b(?:gh[pousr]_|github_pat_|xox[a-z](?:\.xox[a-z])?-)[\w-]{16,}+"),
    _rule("xapp- xwfp-", r"\b(?:xapp|xwfp)-[\w-]{16,}+"),
    _rule("glpat- gldt- glrt- glcbt- glptt-", r"\bgl(?:pat|dt|rt|cbt|ptt)-[\w.-]{16,}+"),
    _rule(":", r"(?<![0-9])[0-9]{6,12}+:[\w-]{32,50}(?![\w-])"),  # a chat bot
    _rule("sg.", r"(?<![\w-])SG\.[\w-]{16,}+\.[\w-]{16,}+"),
    _rule("npm_ pypi- dapi", r"(?<![\w-])(?:npm_[a-z0-9]{30,}+|pypi-[\w-]{16,}+|dapi[0-9a-f]{32})"),
    _rule("_v1_ shp", r"(?<![\w-])(?:do[opr]_v1_|shp(?:at|ca|pa|ss)_)[0-9a-f]{32,}+"),
    _rule("hvs. hvb. hvr. atatt3", r"(?<![\w-])(?:hv[sbr]\.|ATATT3)[\w=-]{20,}+"),
    _rule("lin_api_ ntn_ sq0", r"(?<![\w-])(?:lin_api_|ntn_|sq0[a-z]{3}-)[\w-]{20,}+"),
    _rule("key-", r"(?<![\w-])key-[0-9a-f]{32}(?![\w-])"),
    _rule(".", r"(?<![\w-])[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}+"),  # a bot of Discord
)

RULES = (*_ISSUED[:1], *_URLS, *_GIVEN, *_ISSUED[1:])
HINTS = tuple((hint, rule) for rule in RULES for hint in rule.hints)
