"""Small programs for the lines of pages, in place of programs that a machine lacks."""

import os
import shutil
import sys
from pathlib import Path

_CURL = """
import sys, urllib.request
words, headers, body, url = iter(sys.argv[1:]), {}, None, ""
for word in words:
    if word == "-H":
        name, _, value = next(words).partition(": ")
        headers[name] = value
    elif word == "-d":
        body = next(words).encode()
    elif not word.startswith("-"):
        url = word
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
opener.addheaders = []
try:
    answer = opener.open(urllib.request.Request(url, body, headers), timeout=60)
except urllib.error.HTTPError as error:
    answer = error  # curl shows it as any other
sys.stdout.write(answer.read().decode())
"""

_OPENSSL = """
import base64, hashlib, hmac, sys

words, given = sys.argv[1:], sys.stdin.buffer.read()
if words == ["base64", "-d", "-A"]:
    said = base64.b64decode(given)
elif words == ["base64", "-A"]:
    said = base64.b64encode(given)
else:
    *options, key, form = words
    assert options == ["dgst", "-sha256", "-mac", "HMAC", "-macopt"] and form == "-binary", words
    key = bytes.fromhex(key.removeprefix("hexkey:"))
    said = hmac.new(key, given, hashlib.sha256).digest()
sys.stdout.buffer.write(said)
"""


def path_with_curl(folder: Path) -> str:
    """A PATH on which there is a curl; ``folder`` is the test's own."""
    return os.environ["PATH"] if shutil.which("curl") else _path_with("curl", _CURL, folder)


def path_with_openssl(folder: Path, *, stand_in: bool) -> str:
    """Return a PATH with the commands of docs/webhooks.md; ``stand_in`` forces the small one."""
    is_there = not stand_in and shutil.which("openssl") is not None
    return os.environ["PATH"] if is_there else _path_with("openssl", _OPENSSL, folder)


def _path_with(name: str, text: str, folder: Path) -> str:
    program = folder / name
    program.write_text(f"#!{sys.executable} -S\n{text}", encoding="utf-8")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
