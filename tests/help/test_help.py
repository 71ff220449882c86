#!/usr/bin/env python3
"""`leat help`: every group and name, unknown names, the HTML pages and their links, the dictionary for the fuzzer.

    tests/help/test_help.py PATH_OF_LEAT
"""

import html.parser
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402

LEAT = sys.argv[1]
GROUPS = {"sources": "source", "formats": "format", "operators": "operator", "functions": "function",
          "windows": "window", "learners": "learner", "optimizers": "optimizer",
          "losses": "loss", "sinks": "sink", "job": "job"}
VOID = {"meta", "link", "input"}


def leat(*arguments):
    result = subprocess.run([LEAT, "help", *arguments], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, result.stderr


def overview():
    """{group: [name, ...]} as `leat help` prints it."""
    status, text, _ = leat()
    assert status == 0
    groups = {}
    *parts, device, types, limits, metrics = text.split("\n\n")
    assert device == "device: what kernels run on, as found on this machine\n  cpu, cuda", device
    assert types.startswith("types: ") and limits.startswith("limits: ") and metrics.startswith("metrics: "), text
    for part in parts[1:]:
        head, _, names = part.partition("\n")
        groups[head.split(":")[0]] = re.split(r",\s+", names.strip())
    return groups


def test_every_group_and_name():
    groups = overview()
    assert list(groups) == list(GROUPS), groups.keys()
    for group, names in groups.items():
        assert names and all(names), group
        if group != "job":
            status, text, _ = leat(group)
            assert status == 0 and text.startswith(group + ": "), text
            for name in names:
                assert re.search(rf"^  {re.escape(name)}\b", text, re.M), (group, name)
        for name in names:
            status, text, _ = leat(GROUPS[group], name)
            assert status == 0 and text.startswith(f"{GROUPS[group]} {name}: "), (group, name, text)
            if group != "formats":
                assert "\nexample\n  " in text, (group, name)
            assert all(len(line) <= 100 for line in text.split("\n")[1:] if not line.startswith("  source ")
                       and not line.startswith("  learner ") and not line.startswith("  sink ")), (group, name)


def test_whatever_is_listed_can_be_asked_for():
    listed = re.sub(r"^The reference.*", "", leat()[1])
    words = set(re.findall(r"^(\w+): ", listed, re.M)) | {w for names in overview().values() for w in names} | {"cpu", "cuda"}
    for word in sorted(words):
        status, text, errors = leat(word)
        assert status == 0 and text, (word, errors)
    assert leat("cpu")[1] == leat("device", "cpu")[1]
    assert leat("limit")[0] == 2 and "did you mean `limits`" in leat("limit")[2]


def test_what_is_said():
    _, text, _ = leat("dedup")
    assert text.startswith("operator dedup: ")
    assert "STREAM | dedup by COLUMN, ... within DURATION" in text
    assert re.search(r"^  within  duration or `forever`; required; 1ms to \d+d$", text, re.M), text
    _, text, _ = leat("variance")
    assert "sample variance" in text and "n - 1" in text and "sqrt(variance)" in text
    _, text, _ = leat("source", "file")
    assert "options of every source\n" in text and re.search(r"^  max_delay  duration; .*default 0s$", text, re.M)
    _, text, _ = leat("job")
    assert re.search(r"^      keep  {.*\n.*\n          last  int; 1 to 1000; default 3$", text, re.M), text
    _, text, _ = leat("dead_letters")
    assert re.search(r"job text.*\braw_bytes\s+bytes\.", text, re.S) and "from dead_letters {" in text, text
    _, text, _ = leat("optimizer", "ftrl")
    assert "rate" in text and "l1" in text
    _, text, _ = leat("sasrec")
    assert "NAME.top (the" in text and "loss; default sampled_softmax" in text and "`leat help losses`" in text, text
    assert re.search(r"^  also  masked\n(.*\n)*      masked  each .*\n(.*\n)*          share  float; 0.01 to 0.9; default 0.2$", text, re.M), text
    assert "masked" not in leat("optimizers")[1]
    assert "NAME.predictions (the" in leat("deepfm")[1] and re.search(r"^  negatives  int; 1 to 4096", leat("loss", "gbce")[1], re.M)
    _, text, _ = leat("deepfm")
    assert "optimizer; default adagrad" in text and "`leat help optimizers`" in text


def test_names_of_several_kinds():
    status, text, _ = leat("file")
    assert status == 0 and "source file: " in text and "sink file: " in text
    status, text, _ = leat("cross")
    assert status == 0 and "operator cross: " in text and "function cross: " in text
    status, text, _ = leat("window")
    assert status == 0 and text.count("operator window: ") == 1, text


def test_unknown_names():
    for arguments, hint in ((("dedpu",), "did you mean `dedup`?"), (("opertors",), "did you mean `operators`?"),
                            (("operator", "dedpu"), "did you mean `dedup`?"), (("sink", "fil"), "did you mean `file`?"),
                            (("zzzzzzzz",), "`leat help` lists"), (("learner", "zzzzzzz"), "`leat help learners`"),
                            (("operator", "file"), "hint: "), (("nogroup", "file"), "hint: ")):
        status, text, errors = leat(*arguments)
        assert status == 2 and text == "" and "error[E1001]" in errors and hint in errors, (arguments, errors)
    status, _, errors = leat("a", "b", "c")
    assert status == 2 and "at most" in errors


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.text = [], set(), set(), ""
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in attrs:
            assert attrs["id"] not in self.ids, attrs
            self.ids.add(attrs["id"])
        if "href" in attrs:
            self.links.add(attrs["href"])

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data):
        self.text += data


def read_pages(folder):
    pages = {}
    for name in os.listdir(folder):
        if name.endswith(".html"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                pages[name] = Page(file.read())
    return pages


def test_pages():
    with tempfile.TemporaryDirectory() as root:
        folder = os.path.join(root, "a", "docs")
        status, _, errors = leat("--html", folder)
        assert status == 0, errors
        pages = read_pages(folder)
        assert set(pages) == {group + ".html" for group in GROUPS} | {"index.html", "types.html", "limits.html", "metrics.html"}
        for name, page in pages.items():
            for link in page.links:
                target, _, anchor = link.partition("#")
                assert os.path.exists(os.path.join(folder, target)), (name, link)
                assert not anchor or anchor in pages[target].ids, (name, link)
        for group, names in overview().items():
            for name in names:
                anchors = {name, "aggregate-" + name} & pages[group + ".html"].ids
                assert anchors and all(f"{group}.html#{anchor}" in pages["index.html"].links for anchor in anchors)
                # The same words as in the terminal.
                for line in leat(GROUPS[group], name)[1].split("\n"):
                    if line.startswith("      ") and len(line) < 80:
                        # where the terminal says what to ask next, after a long default on a line of its own, a page has a link
                        words = re.sub(r"\s+", " ", re.sub(r"(^|; )see(?: leat .*|$)|^leat help .*", "", line.strip().replace("`", "")))
                        assert words in re.sub(r"\s+", " ", pages[group + ".html"].text), (group, name, line)
        first = {name: open(os.path.join(folder, name), encoding="utf-8").read() for name in os.listdir(folder)}
        assert leat("--html", folder)[0] == 0
        again = {name: open(os.path.join(folder, name), encoding="utf-8").read() for name in os.listdir(folder)}
        assert first == again
        with open(os.path.join(root, "file"), "w", encoding="utf-8") as file:
            file.write("x")
        status, _, errors = leat("--html", os.path.join(root, "file", "below"))
        assert status == 1 and "E0605" in errors and "Not a directory" in errors, errors


def test_dictionary():
    status, text, _ = leat("--options")
    lines = text.splitlines()
    assert status == 0 and len(lines) > 150
    assert all(re.fullmatch(r'\w+="[^"\\]+"', line) for line in lines)
    for word in ('operator_dedup_within="within"', 'source_event_time="event_time"', 'job_job_checkpoint_keep_last="last"',
                 'source_file_format_choice="json"', 'function_log1p="log1p"', 'learner_deepfm_linear_adagrad="adagrad"'):
        assert word in lines, word


if __name__ == "__main__":
    sys.exit(tap.run(globals()))
