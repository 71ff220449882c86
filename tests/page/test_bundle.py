#!/usr/bin/env python3
"""page/bundle is what page/src makes, byte for byte; it is small, and names nothing from elsewhere. Prints TAP.

    tests/page/test_bundle.py
"""

import filecmp
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from node import PAGE, missing, read_json  # noqa: E402

BUNDLE = os.path.join(PAGE, "bundle")
FILES = ["app.css", "app.js", "index.html"]
ZIPPED_BYTES_MAX = 120 * 1024
LIMIT_S = 240
URL = re.compile(rb"""(?:\b[a-z][a-z0-9+.-]*:)?//[\w-]+(?:\.[\w-]+)+[^\s"'`)]*""", re.I)
NAMESPACES = {b"http://www.w3.org/2000/svg", b"http://www.w3.org/1999/xhtml", b"http://www.w3.org/1998/Math/MathML",
              b"http://www.w3.org/1999/xlink", b"http://www.w3.org/XML/1998/namespace"}  # names, which nobody fetches


def bundled(name):
    with open(os.path.join(BUNDLE, name), "rb") as file:
        return file.read()


def ask(*words, cwd=PAGE):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, (words, done.stdout[-1500:], done.stderr[-1500:])


def test_types():
    """The sources are TypeScript without an error."""
    if why := missing():
        return why
    ask("npx", "--no-install", "tsc", "--noEmit")
    return None


def test_layout():
    """The sources are laid out by prettier."""
    if why := missing():
        return why
    ask("npx", "--no-install", "prettier", "--check", ".")
    return None


def test_built_again():
    """The same sources in another folder make the same bytes."""
    if why := missing():
        return why
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "page")
        shutil.copytree(PAGE, copy, ignore=shutil.ignore_patterns("node_modules", "bundle"))
        os.symlink(os.path.join(PAGE, "node_modules"), os.path.join(copy, "node_modules"))
        ask("npm", "run", "build", "--silent", cwd=copy)
        made = os.path.join(copy, "bundle")
        assert sorted(os.listdir(made)) == FILES, os.listdir(made)
        differ = [name for name in FILES if not filecmp.cmp(os.path.join(made, name), os.path.join(BUNDLE, name), shallow=False)]
        assert not differ, f"{differ} of page/bundle are not what page/src makes: `npm run build` in page/, and commit them"
    return None


def test_size():
    assert sorted(os.listdir(BUNDLE)) == FILES, os.listdir(BUNDLE)
    zipped = sum(len(gzip.compress(bundled(name), 9, mtime=0)) for name in FILES)
    print(f"# {zipped} bytes with gzip, of {ZIPPED_BYTES_MAX}")
    assert 0 < zipped <= ZIPPED_BYTES_MAX, zipped


def test_nothing_from_elsewhere():
    """No URL of another place, nothing inline, no code made of texts, no map of the sources."""
    for name in FILES:
        text = bundled(name)
        urls = {url for url in URL.findall(text) if url not in NAMESPACES}
        assert not urls, (name, urls)
        assert not re.search(rb"sourceMappingURL|\beval\s*\(|\bnew Function\b|@import", text), name
    page = bundled("index.html").decode()
    assert re.findall(r"<script\b[^>]*>(.*?)</script>", page, re.S) == [""], page
    assert not re.search(r"<style|\sstyle=|\son\w+=", page), page
    assert re.findall(r'\b(?:src|href)="([^"]*)"', page) == ["data:,", "./app.js", "./app.css"], page


def test_licences():
    """The licences of the packages in the bundle stand in it."""
    head = bundled("app.js").decode()[:6000]
    for name in read_json("package.json")["dependencies"]:
        assert f"/*! {name}\n" in head, name
    assert head.count("Permission is hereby granted") == 2 and head.count("Copyright (c)") == 2, head[:300]


def test_texts_stay_texts():
    """Nothing of the sources makes HTML of a text; uPlot and Preact do it only with what the sources hand them."""
    for folder, _, names in os.walk(os.path.join(PAGE, "src")):
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found = re.search(r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write", file.read())
            assert not found, (name, found)


def test_packages():
    """Versions are exact, and the lock file has each package's digest and no other registry than npm's own."""
    package, lock = read_json("package.json"), read_json("package-lock.json")
    for name, version in {**package["dependencies"], **package["devDependencies"]}.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), (name, version)
    for path, one in lock["packages"].items():
        assert path == "" or one.get("integrity", "").startswith("sha512-"), path
        assert one.get("resolved", "https://registry.npmjs.org/").startswith("https://registry.npmjs.org/"), (path, one)
    with open(os.path.join(PAGE, ".npmrc"), encoding="utf-8") as file:
        assert "registry" not in file.read()


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
