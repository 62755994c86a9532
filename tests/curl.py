"""For pages whose lines are typed with curl: a small one, where the machine has none."""

import os
import shutil
import sys
from pathlib import Path

_SMALL = """#!{python} -S
import sys, urllib.request
words, headers, body, url = iter(sys.argv[1:]), {{}}, None, ""
for word in words:
    if word == "-H":
        name, _, value = next(words).partition(": ")
        headers[name] = value
    elif word == "-d":
        body = next(words).encode()
    elif not word.startswith("-"):
        url = word
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
opener.addheaders = []
try:
    answer = opener.open(urllib.request.Request(url, body, headers), timeout=60)
except urllib.error.HTTPError as error:
    answer = error  # curl shows it as any other
sys.stdout.write(answer.read().decode())
"""


def path_with_curl(folder: Path) -> str:
    """A PATH on which there is a curl; ``folder`` is the test's own."""
    path = os.environ["PATH"]
    if shutil.which("curl") is not None:
        return path
    small = folder / "curl"
    small.write_text(_SMALL.format(python=sys.executable), encoding="utf-8")
    small.chmod(0o755)
    return f"{folder}{os.pathsep}{path}"
