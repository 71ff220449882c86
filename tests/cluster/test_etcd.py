#!/usr/bin/env python3
"""engine/cluster against a real etcd of one and three members: killed, stopped, full, secured, emptied, behind a proxy that
loses answers; and in the face of servers that are no etcd. No password may be in anything that was said.

    test_etcd.py ETCD_TOOL [TEST...]
"""

import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import time

import etcd
from etcd import wait_for

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tap  # noqa: E402
from patience import PATIENCE_S, stretched  # noqa: E402

TOOL = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
FOLDER = tempfile.TemporaryDirectory(prefix="leat-cluster-")
ONE = []  # an etcd of one member that writes without fsync, for what needs no faults of members
JOB = ("digest", "1.0", "avx2", "10.0.0.1:7000", 0)
HEAD = "/leat/{}/head"
PASSWORD = "hunter2-of-leat"
ROOT = "root-of-etcd"
PROGRESS = ("--experimental-watch-progress-notify-interval", "1s")
NAMES = iter(range(10**9))
DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"
COMPARE, UNREACHABLE, NO_ANSWER, BAD_ANSWER, NO_LEADER, TIMED_OUT, BUSY = range(1, 8)
NO_SPACE, DENIED, LOGIN, TOKEN, COMPACTED, FUTURE, TOO_LARGE, NO_LEASE = range(8, 16)


def path(name):
    return os.path.join(FOLDER.name, f"{next(NAMES)}-{name}")


def is_outcome(expected, answer, *words, code=None):
    """The outcome; of one that is not `done`, code and words of the one diagnostic, with a way out."""
    assert answer["outcome"] == expected, answer
    if words or code:
        assert [d["code"] for d in answer["diags"]] == [code or "E0712"] and answer["diags"][0]["hint"], answer
        text = answer["diags"][0]["message"] + " / " + answer["diags"][0]["hint"]
        for word in words:
            assert word in text, (word, text)
    return answer


def well(answer):
    assert answer["outcome"] == DONE and not [d for d in answer["diags"] if d["code"] != "E0609"], answer
    return answer


def tool(cluster=None, name=None, **options):
    """Requests and leases last as long as a loaded machine takes, unless the options say otherwise."""
    endpoints = cluster if isinstance(cluster, str) else (cluster or ONE[0]).endpoints()
    return etcd.Tool(TOOL, endpoints, name or f"n{next(NAMES)}", **{"request_ms": 60000, "lease_s": 600, **options})


def loaded_ms(ms):
    """A deadline for what may end by it, or is to: so much where nothing else runs, and more as this machine is loaded."""
    return math.ceil(stretched(ms / 2))


def entries(answer):
    return {entry["key"]: entry["value"] for entry in well(answer)["entries"]}


def known(call, *words):
    """A step that must be done, asked for until it is known."""
    def answer():
        found = call(*words)
        assert found["outcome"] != REFUSED, found
        return found if found["outcome"] == DONE else None
    return wait_for(words, answer)


def become_leader(call):
    """Joined, leading, read, with a new incarnation."""
    known(call, "join", *JOB)
    wait_for("the lead", lambda: call("campaign")["outcome"] == DONE)
    known(call, "read")
    return known(call, "begin")


# --- The client ---


def test_keys():
    with tool() as call:
        root = f"k{next(NAMES)}/"
        for name in ("b", "a", "c"):
            well(call("put", root + name, name * 3))
        assert entries(call("get", root + "a")) == {root + "a": "aaa"}
        assert list(entries(call("prefix", root))) == [root + name for name in "abc"]
        assert entries(call("get", root + "none")) == {}
        assert list(entries(call("first", root))) == [root + "b"]
        before = well(call("get", root + "a"))["revision"]
        well(call("put", root + "a", "new"))
        assert entries(call("at", before, root + "a")) == {root + "a": "aaa"}
        assert entries(call("stale", root + "a")) == {root + "a": "new"}
        well(call("delete", root + "a"))
        assert list(entries(call("prefix", root))) == [root + "b", root + "c"]
        well(call("fill", root + "many", 1100, 5))  # three pages
        assert len(entries(call("prefix", root + "many"))) == 1100
        is_outcome(REFUSED, call("at", before + 10**6, root + "a"), "future revision", "restored")
        is_outcome(REFUSED, call("put", root + "large", "x" * 1700000), "smaller request")


def test_txns():
    """Each target and relation, true and false; which compare does not hold; several operations."""
    with tool() as call:
        root = f"t{next(NAMES)}/"
        key = root + "a"
        well(call("put", key, "m"))
        entry = well(call("put", key, "m"))["entries"] or well(call("get", key))["entries"]
        facts = {"mod": entry[0]["mod"], "create": entry[0]["create"], "version": entry[0]["version"]}
        assert facts["version"] == 2 and facts["mod"] > facts["create"]
        for target, fact in [*facts.items(), ("value", "m")]:
            less, more = ("l", "n") if target == "value" else (fact - 1, fact + 1)
            for relation, holds, fails in (("equal", fact, more), ("not", more, fact), ("greater", less, fact),
                                           ("less", more, fact)):
                well(call("txn", f"{target},{relation},{key},{holds}", f"put,{root}x,1", ""))
                answer = call("txn", f"version,equal,{key},2|{target},{relation},{key},{fails}", f"put,{root}x,1", "")
                assert (answer["outcome"], answer["error"], answer["compare"]) == (REFUSED, COMPARE, 1), answer
                assert not answer["diags"]
        answer = call("txn", f"mod,equal,{root}none,0|value,not,{root}none,x", "", f"range,{key}")
        assert answer["compare"] == 1 and [e["value"] for e in answer["entries"]] == ["m"], answer
        answer = call("txn", f"create,greater,{key},0", f"put,{root}y,2|delete,{root}x|prefix,{root}|put,{root}z,3", "")
        assert entries(answer) == {key: "m", root + "y": "2"}, answer
        assert list(entries(call("prefix", root))) == [key, root + "y", root + "z"]
        is_outcome(REFUSED, call("txn", "", f"put,{root}y,2|put,{root}y,3", ""), "duplicate key")


def test_leases():
    with tool() as call:
        key = f"l{next(NAMES)}"
        lease = well(call("grant", 60))
        assert lease["ttl"] == 60 and lease["lease"] != 0
        assert well(call("grant", 1))["ttl"] >= 2  # as etcd wants it
        well(call("put", key, "v", lease["lease"]))
        assert well(call("keep", lease["lease"]))["ttl"] == 60
        assert 0 < well(call("left", lease["lease"]))["ttl"] <= 60
        well(call("revoke", lease["lease"]))
        assert entries(call("get", key)) == {}
        for command in ("keep", "left", "revoke"):
            answer = is_outcome(REFUSED, call(command, lease["lease"]), "a lease that lives", "join")
            assert answer["error"] == NO_LEASE
        assert is_outcome(REFUSED, call("put", key, "v", lease["lease"]), "lease not found")["error"] == NO_LEASE


def next_of(call, kind):
    def look():
        found = call("next", 1000)
        assert found["watched"] in (kind, "quiet", "progress"), found
        return found if found["watched"] == kind else None
    return wait_for(kind, look)


def test_watch():
    with tool() as call, tool() as other:
        root = f"w{next(NAMES)}/"
        first = well(call("put", root + "a", 1))["revision"]
        well(call("put", root + "b", 2))
        call("watch", root, 1, first)
        got = []
        while len(got) < 2:
            got += next_of(call, "events")["events"]
        assert [(e["key"], e["value"], e["delete"]) for e in got] == [(root + "a", "1", False), (root + "b", "2", False)]
        answer = other("txn", "", f"put,{root}c,3|delete,{root}a", "")
        got = next_of(call, "events")
        assert [(e["key"], e["delete"]) for e in got["events"]] == [(root + "c", False), (root + "a", True)], got
        assert got["revision"] == answer["revision"]
        assert next_of(call, "progress")["revision"] >= answer["revision"]
        call("watch", root, 1, 0)  # from now on: from when etcd has it
        next_of(call, "progress")
        well(other("put", root + "d", 4))
        answer = wait_for("d", lambda: call("next", 500)["events"])
        assert [e["key"] for e in answer] == [root + "d"]
        last = well(other("put", root + "d", 5))["revision"]
        well(other("put", root + "e", 6))
        well(other("compact", last))
        call("watch", root, 1, first)
        for _ in range(2):
            assert next_of(call, "compacted")["revision"] == last
        is_outcome(REFUSED, call("at", first, root + "a"), "compacted")
        call("watch", root, 1, last)
        assert next_of(call, "events")["events"][0]["mod"] == last


def test_a_watch_is_cut():
    """It goes on behind what it has given, from the next endpoint on, and gives nothing twice."""
    root = f"c{next(NAMES)}/"
    with etcd.Proxy(ONE[0].members[0].client) as one, etcd.Proxy(ONE[0].members[0].client) as two, tool() as other:
        with tool(f"{one.endpoint()},{two.endpoint()}") as call:
            call("watch", root, 1, well(other("put", root + "0", 0))["revision"])
            seen = next_of(call, "events")["events"]
            for i in range(1, 5):
                one.cut()
                two.cut()
                is_outcome(DONE, next_of(call, "lost"), "cannot watch")
                well(other("put", f"{root}{i}", i))
                seen += next_of(call, "events")["events"]
            assert [e["value"] for e in seen] == list("01234"), seen


def test_watch_is_bounded():
    """20 MiB of changes that nobody takes: memory stays, and all of them come later, once."""
    with tool() as call, tool() as other:
        root = f"b{next(NAMES)}/"
        start = well(call("put", root + "first", 0))["revision"]
        call("watch", root + "big", 1, start)
        call("next", 10)
        well(other("fill", root + "big", 100, 200000))
        seen = next_of(call, "events")["events"]
        while len(seen) < 100:
            seen += next_of(call, "events")["events"]
        assert [e["key"] for e in seen] == [f"{root}big{i:04}" for i in range(100)]
        kib = int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{call.process.pid}/status", encoding="ascii").read()).group(1))
        is_sanitized = re.search(rb"__[at]san_init", open(TOOL, "rb").read())
        print(f"#   {kib} KiB")
        assert kib < 24 << 10 or is_sanitized, kib
        for entry in seen:
            assert len(entry["value"]) == 200000


def test_no_endpoint():
    port = etcd.free_ports(1)[0]
    with tool(f"127.0.0.1:{port}", request_ms=300) as call:
        answer = is_outcome(REFUSED, call("put", "k", "v"), "expected a member of etcd", "is etcd up")
        assert answer["error"] == UNREACHABLE  # nothing was sent
        is_outcome(UNKNOWN, call("get", "k"), "expected a member of etcd")
        is_outcome(UNKNOWN, call("read"), "expected a member of etcd")
        is_outcome(UNKNOWN, call("join", *JOB), "expected a member of etcd")
        call("watch", "k", 0, 0)
        next_of(call, "lost")
    with tool(f"127.0.0.1:{port},{ONE[0].endpoints()}") as call:
        well(call("put", "k", "v"))
        assert call("status")["version"].startswith("3.")


def test_addresses():
    for address, word in (("http://h/n", "etcd://"), ("etcd://h:1", "a name behind"), ("etcd:///n", "endpoints"),
                          ("etcd://h/" + "n" * 65, "1 to 64"), ("etcd://h/a/b", "1 to 64"), ("etcd://h/.a", "1 to 64"),
                          ("etcd://h:0/n", "HOST:PORT"), ("etcd://h:x/n", "HOST:PORT"), ("etcd://h:70000/n", "HOST:PORT"),
                          ("etcd://h,,g/n", "HOST:PORT"), ("etcd://me:secret@h/n", "HOST:PORT"), ("etcd://h\x1b/n", "HOST:PORT"),
                          ("etcd://" + ",".join(["h"] * 17) + "/n", "at most 16"), ("etcd://h/n\n", "1 to 64")):
        with etcd.Tool(TOOL, address, None) as call:
            is_outcome(REFUSED, call.opened, word)
    for options, word in (({"user": "u"}, "expected both"), ({"certificate": "/dev/null"}, "expected both"),
                          ({"certificate": "/dev/null", "key": "/dev/null"}, "no authority"),
                          ({"authority": "/none"}, "cannot be read")):
        with tool("h", **options) as call:
            is_outcome(REFUSED, call.opened, word)
    with tool("h", lease_s=4000) as call:
        is_outcome(REFUSED, call.opened, "3600", code="E0404")
    with tool("etcd.invalid,127.0.0.1") as call:
        assert call.opened["outcome"] == DONE, call.opened
        assert {d["code"] for d in call.opened["diags"]} == {"E0609"} and "etcd.invalid" in call.opened["diags"][0]["message"]
    for endpoints in ("127.0.0.1", "[::1]:1,localhost"):
        with tool(endpoints) as call:
            assert well(call.opened)["diags"] == []


def http(body, status=200, kind="application/json"):
    body = body.encode() if isinstance(body, str) else body
    return b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, kind.encode(), len(body)) + body


def endless():
    yield b"HTTP/1.1 200 OK\r\n\r\n{\"header\":{},\"kvs\":["
    while True:
        yield b"{}," * 20000


def slow():
    yield b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"
    while True:
        time.sleep(0.1)
        yield b" "


def test_what_is_no_etcd():
    """Bounded in bytes and time; a write is unknown, a read has no answer; nothing crashes."""
    header = '"header":{"revision":"7","cluster_id":"1"}'
    entry = '{"key":"aw==","create_revision":"1","mod_revision":"2","version":"1","value":"dg=="}'
    bad = [b"SSH-2.0-OpenSSH_9\r\n", http(""), http("{}"), http("null"), http("[]"), http("{" + header),
           http("<html>", 502, "text/html"),
           http("\0\1\2\3"), http('{"header":{"revision":7}}'), http('{"header":{"revision":"-7"}}'), http("[" * 100000),
           http('{"header":{"revision":"99999999999999999999"}}'), http('{%s,%s,"header":3}' % (header, header)),
           http('{%s,"kvs":3,"responses":3,"succeeded":3}' % header), http('{%s,"succeeded":true}' % header),
           http('{%s,"succeeded":true,"responses":[{}]}' % header),
           http('{%s,"kvs":[{"key":"!"}],"responses":[{}]}' % header),
           http('{%s,"kvs":[7],"responses":[{"response_put":7}]}' % header),
           http('{%s,"more":true,"kvs":[]}' % header), http('{%s,"kvs":[%s]}' % (header, entry.replace('"2"', '"0"'))),
           http('{"error":{"a":1},"code":"x"}', 500), http("", 204), http("{}", 302), endless, slow]
    for body in bad:
        with etcd.Fake(lambda _, body=body: body() if callable(body) else body) as fake:
            with tool(fake.endpoint(), request_ms=PATIENCE_S * 1000 if body is endless else loaded_ms(500)) as call:
                begin = time.monotonic()
                answer = call("txn", "mod,equal,k,0", "put,k,v", "")
                assert answer["outcome"] == UNKNOWN and answer["error"] in (NO_ANSWER, BAD_ANSWER), (body, answer)
                is_outcome(UNKNOWN, answer, "whether it happened is not known")
                if body is endless:
                    assert answer["error"] == BAD_ANSWER and "too long" in answer["diags"][0]["message"], answer
                    continue
                answer = call("get", "k")
                is_empty_range = not callable(body) and header in body.decode(errors="replace") and b"kvs" not in body
                has_none = answer["outcome"] == UNKNOWN and answer["error"] in (NO_ANSWER, BAD_ANSWER)
                assert is_empty_range or has_none, (body, answer)
                assert call("grant", 3)["outcome"] == UNKNOWN
                assert is_empty_range or call("read")["outcome"] == UNKNOWN
                assert call("status")["outcome"] == UNKNOWN
                call("watch", "k", 0, 0)
                assert call("next", 100)["watched"] in ("lost", "quiet"), body
                assert time.monotonic() - begin < PATIENCE_S
    with etcd.Fake(lambda _: http('{"error":"etcdserver: too many requests","code":8}', 429)) as fake:
        with tool(fake.endpoint(), request_ms=200) as call:
            wait_for("a refusal in time", lambda: call("put", "k", "v")["error"] == BUSY)
    stream = '{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}'
    with etcd.Fake(lambda _: http(stream)) as fake, tool(fake.endpoint(), request_ms=200) as call:
        wait_for("the word of a stream", lambda: call("keep", 7)["error"] == NO_LEADER)


# --- Security ---


def test_secured():
    """TLS with a client's certificate, user and password; a token that etcd has forgotten; what is refused, and how."""
    if shutil.which("openssl") is None:
        return "openssl is not installed (./dev setup)"
    with etcd.Etcd(path("secure"), is_secure=True, is_fast=True) as cluster:
        at = lambda name: os.path.join(cluster.folder, name)  # noqa: E731
        good = {"authority": at("ca.pem"), "certificate": at("client.pem"), "key": at("client.key")}
        user = {"user": "leat", "password": PASSWORD}
        with tool(cluster, **good) as call:
            well(call("put", "k", "v"))
        for options, word in (({**good, "authority": at("other-ca.pem")}, "expected TLS that both"),
                              ({"authority": at("ca.pem")}, "expected TLS that both"),
                              ({}, "does it use TLS")):
            with tool(cluster, request_ms=300, **options) as call:
                assert call.opened["outcome"] == DONE

                def is_said(call=call, word=word):  # the last try of a request may have been too short to see it
                    answer = call("put", "k", "v")
                    assert answer["outcome"] != DONE and answer["diags"][0]["code"] == "E0712", answer
                    return word in answer["diags"][0]["message"] + answer["diags"][0]["hint"]

                wait_for(word, is_said)
        cluster.enable_auth(ROOT, "leat", PASSWORD)
        with tool(cluster, **good, **user) as call:
            become_leader(call)
            well(call("publish", 1))
            assert is_outcome(REFUSED, call("put", "elsewhere", "v"), "rights", "grant-permission")["error"] == DENIED
            cluster.members[0].kill()
            cluster.members[0].start()  # tokens are not kept: "invalid auth token"
            cluster.wait()
            well(call("publish", 2))
            well(call("read"))
        named = {**good, "certificate": at("named.pem"), "key": at("named.key")}
        with tool(cluster, **named, **user) as call:
            is_outcome(REFUSED, call("get", "/leat/x"), "without a common name")
        with tool(cluster, **good, user="leat", password="wrong-" + PASSWORD[:3]) as call:
            assert is_outcome(REFUSED, call("put", "/leat/x", "v"), "a user that etcd knows", "correct")["error"] == LOGIN
            is_outcome(REFUSED, call("get", "/leat/x"), "authentication failed")
            is_outcome(REFUSED, call("join", *JOB), "authentication failed")
        with tool(cluster, **good) as call:
            assert call("put", "/leat/x", "v")["error"] == DENIED


# --- The record ---


def test_another_version():
    """Where no worker is there, another version of leat goes on with the job, under the same id; one that is there then is out of date."""
    name, newer = f"n{next(NAMES)}", [JOB[0], "2.0", *JOB[2:]]
    with tool(name=name) as old, tool(name=name) as new:
        well(old("join", *JOB))
        is_outcome(REFUSED, new("join", *newer), "the version of leat `1.0`", "found `2.0`", "leat cluster stop", code="E0713")
        well(old("leave"))
        well(new("join", *newer))
        is_outcome(REFUSED, old("join", *JOB), "the version of leat `2.0`", "found `1.0`", code="E0713")
        well(new("leave"))
        well(old("join", *JOB))
        well(old("leave"))


def test_two_jobs_of_one_name():
    name = f"n{next(NAMES)}"
    with tool(name=name) as call, tool(name=name) as other:
        well(call("join", *JOB))
        for place, what, word in ((0, "other", "the job `digest`"), (1, "2.0", "the version of leat `1.0`"),
                                  (2, "neon", "the profile of arithmetic `avx2`")):
            words = list(JOB)
            words[place] = what
            is_outcome(REFUSED, other("join", *words), word, "10.0.0.1:7000", f"found `{what}`", code="E0713")
        assert other("member")["lease"] == 0
        well(other("join", *JOB[:3], "10.0.0.2:7000", 1))

        members = well(call("read"))["members"]
        assert {m["address"] for m in members} == {"10.0.0.1:7000", "10.0.0.2:7000"} and members[0]["lanes"] == 3
        well(other("leave"))
        assert [m["address"] for m in well(call("read"))["members"]] == ["10.0.0.1:7000"]
        assert not other("member")["member"]


def test_leader_writes():
    name = f"n{next(NAMES)}"
    with tool(name=name) as call, tool(name=name) as other:
        begun = become_leader(call)
        assert begun["incarnation"] == 1 and len(set(begun["secret"])) > 5
        well(other("join", *JOB))
        answer = other("campaign")
        assert (answer["outcome"], answer["leader"], answer["diags"]) == (REFUSED, call("member")["lease"], []), answer
        is_outcome(REFUSED, other("publish", 1), "does not lead", code="E0709")
        well(call("place", "first placement"))
        well(call("place", "second"))
        assert not other("wait", 1)["diags"]
        well(call("publish", 5))
        wait_for("a change", lambda: other("wait", 5000)["outcome"] == DONE)
        view = well(other("read"))
        assert view["placement"] == "second" and view["secret"] == begun["secret"] and view["head"]["epoch"] == 5
        assert view["head"]["previous"] == 0 and view["head"]["incarnation"] == 1 and view["head"]["manifest"] == "manifests/5"
        well(call("publish", 6))
        second = well(other("read"))["head"]
        assert second["previous"] == view["head"]["revision"] and second["writer"] == call("member")["lease"]
        well(call("leads"))
        well(call("resign"))
        is_outcome(REFUSED, call("publish", 7), code="E0709")
        begun = become_leader(other)
        assert begun["incarnation"] == 2 and begun["secret"] != view["secret"]
        well(other("publish", 7))
        assert call("campaign")["leader"] == other("member")["lease"]


def test_a_leader_dies_and_another_is_stopped():
    """kill -9: the next one leads after the lease. SIGSTOP beyond the lease: at once no member, and its head is refused."""
    name = f"n{next(NAMES)}"
    lease_s = math.ceil(stretched(2.5))
    with tool(name=name, lease_s=lease_s) as first, tool(name=name, lease_s=lease_s) as second, tool(name=name) as third:
        become_leader(first)
        well(first("publish", 1))
        well(second("join", *JOB))
        assert second("campaign")["outcome"] == REFUSED
        first.kill()
        wait_for("the first's end", lambda: second("campaign")["outcome"] == DONE)
        well(second("read"))
        well(second("begin"))
        well(second("publish", 2))
        well(third("join", *JOB))
        assert third("campaign")["outcome"] == REFUSED
        left = second("member")
        assert left["member"] and 0 < left["us"] <= lease_s * 1000000 * 0.9 + 1, left
        second.pause()
        wait_for("the second's end", lambda: third("campaign")["outcome"] == DONE)
        second.send("member")  # is read when it goes on: its clock knows before anybody tells
        second.go_on()
        assert second.read()["member"] is False
        is_outcome(REFUSED, second("publish", 3), "does not lead any more", code="E0709")
        wait_for("that it is gone", lambda: second("member")["gone"])
        is_outcome(REFUSED, second("campaign"), "no lease", code="E0709")
        well(third("read"))
        assert well(third("begin"))["incarnation"] == 3
        well(third("publish", 3))
        well(second("join", *JOB))
        assert second("member")["member"] and second("campaign")["leader"] == third("member")["lease"]
        assert well(second("read"))["head"]["epoch"] == 3


def test_lost_answers():
    """The answer to a head is lost: the read decides. The request itself comes late: before the second, and after it."""
    name = f"n{next(NAMES)}"
    with etcd.Proxy(ONE[0].members[0].client) as proxy, tool(name=name) as direct:
        with tool(proxy.endpoint(), name, request_ms=loaded_ms(1000)) as call:
            become_leader(call)
            known(call, "publish", 1)
            for kind in ("swallow", "close", "hang"):
                before = well(direct("get", HEAD.format(name)))["entries"][0]
                proxy.fault(kind)
                known(call, "publish", before["version"] + 1)
                after = well(direct("get", HEAD.format(name)))["entries"][0]
                assert after["version"] == before["version"] + 1, (kind, before, after)
            head = well(direct("get", HEAD.format(name)))["entries"][0]["version"]
            proxy.fault("swallow")  # libcurl would send it again by itself, and then it would be "refused"
            answer = call("txn", f"create,equal,{name}once,0", f"put,{name}once,1", "")
            assert (answer["outcome"], answer["error"]) == (UNKNOWN, NO_ANSWER), answer
            is_outcome(UNKNOWN, answer, "whether it happened is not known")
            assert well(direct("get", f"{name}once"))["entries"][0]["version"] == 1
            proxy.fault("late", times=10)
            is_outcome(UNKNOWN, call("publish", head + 1), "by the deadline")
            is_outcome(UNKNOWN, call("publish", head + 2), "in doubt")
            assert known(call, "read")["head"]["epoch"] == head  # and yet that may not be the last word
            proxy.faults.clear()
            known(call, "publish", head + 1)
            proxy.release.set()
            assert proxy.handed_on.wait(PATIENCE_S)
            known(call, "publish", head + 2)
            assert well(direct("get", HEAD.format(name)))["entries"][0]["version"] == head + 2
            proxy.release.clear()
            proxy.handed_on.clear()
            proxy.fault("late", times=10)
            is_outcome(UNKNOWN, call("publish", head + 3))
            proxy.faults.clear()
            proxy.release.set()
            wait_for("the late head", lambda: well(direct("get", HEAD.format(name)))["entries"][0]["version"] == head + 3)
            assert known(call, "read")["head"]["epoch"] == head + 3
            known(call, "publish", head + 3)
            known(call, "publish", head + 4)
            assert well(direct("get", HEAD.format(name)))["entries"][0]["version"] == head + 4
            proxy.fault("swallow", times=2)
            begun = known(call, "begin")
            assert well(direct("read"))["secret"] == begun["secret"]
            proxy.fault("hang")
            direct_lease = call("member")["lease"]
            well(direct("revoke", direct_lease))
            is_outcome(REFUSED, call("publish", head + 5), code="E0709")


def test_a_step_is_stopped():
    """A step that waits for an answer, and one that waits for changes, end soon; later ones ask nobody."""
    for words in (("publish", 1), ("wait", 400000)):
        name = f"n{next(NAMES)}"
        with etcd.Proxy(ONE[0].members[0].client) as proxy:
            with tool(proxy.endpoint(), name, request_ms=400000) as call:
                become_leader(call)
                proxy.fault("hang", times=10)
                well(call("stop_in", 100))
                begin = time.monotonic()
                assert call(*words)["outcome"] == UNKNOWN
                assert time.monotonic() - begin < 300
                assert call("publish", 1)["outcome"] == call("read")["outcome"] == UNKNOWN
                assert call("member")["member"]  # its lease is kept to the end


# --- Members of etcd that die ---


def test_three_members():
    """One dies: all goes on. Two: nothing is published, nothing concluded. They are back: it goes on where it was."""
    with etcd.Etcd(path("three"), 3) as cluster:
        name = f"n{next(NAMES)}"
        with tool(cluster, name, request_ms=loaded_ms(1000)) as call, tool(cluster, name, request_ms=loaded_ms(500)) as other:
            become_leader(call)
            known(call, "publish", 1)
            other("watch", f"/leat/{name}/", 1, 1)
            seen = wait_for("events", lambda: other("next", 1000)["events"])
            cluster.members[0].kill()
            known(call, "publish", 2)
            cluster.members[1].kill()
            answer = call("publish", 3)
            assert answer["outcome"] == UNKNOWN and {d["code"] for d in answer["diags"]} == {"E0712"}, answer
            for words in (("campaign",), ("read",), ("leads",), ("begin",), ("publish", 3)):
                answer = call(*words)
                assert answer["outcome"] == UNKNOWN and answer["diags"][0]["hint"], (words, answer)
            with tool(f"127.0.0.1:{cluster.members[2].client}", name, request_ms=loaded_ms(2000)) as alone:
                wait_for("the word of a member without quorum", lambda: alone("put", "k", "v")["error"] == NO_LEADER)
                alone("watch", f"/leat/{name}/", 1, 1)
                is_outcome(DONE, next_of(alone, "lost"), "no leader")
            assert other("join", *JOB)["outcome"] == UNKNOWN
            assert other("put", "k", "v")["outcome"] != DONE
            assert not known(other, "status")["has_leader"] and entries(known(other, "stale", f"/leat/{name}/job"))
            cluster.members[0].start()
            known(call, "publish", 3)
            known(call, "leads")
            assert known(call, "begin")["incarnation"] == 2
            cluster.members[1].start()
            cluster.members[2].pause()
            known(call, "publish", 4)
            cluster.members[2].go_on()

            def changes():
                seen.extend(other("next", 1000)["events"])
                return [json.loads(e["value"])["epoch"] for e in seen if e["key"].endswith("/head")] == [1, 2, 3, 4]

            wait_for("each head once, over all of that", changes)
            known(other, "join", *JOB)


def test_data_lost():
    with etcd.Etcd(path("lost"), is_fast=True) as cluster:
        name = f"n{next(NAMES)}"
        with tool(cluster, name) as call, tool(cluster, name) as other:
            become_leader(call)
            well(call("publish", 9, 3))
            cluster.members[0].lose_data()
            cluster.members[0].start()
            cluster.wait()
            for words in (("read",), ("join", *JOB)):
                is_outcome(REFUSED, call(*words), "lost data", "the newest file in DIR/cluster/heads", code="E0714")
            is_outcome(REFUSED, other("join", *JOB[:4], 1), "expected its record", "--from=", code="E0714")
            assert entries(other("prefix", "/leat/")) == {}
            well(other("rebuild", 11, 7))
            well(other("rebuild", 11, 7))  # its answer may have been lost
            is_outcome(REFUSED, other("rebuild", 12, 7), "found one", code="E0713")
        with tool(cluster, name) as call:
            well(call("join", *JOB[:4], 1))
            wait_for("the lead", lambda: call("campaign")["outcome"] == DONE)
            assert well(call("read"))["head"]["epoch"] == 11
            assert well(call("begin"))["incarnation"] == 8
            well(call("publish", 12))
            well(call("delete", f"/leat/{name}/job"))
            is_outcome(REFUSED, call("read"), "joined is gone", code="E0714")
            is_outcome(REFUSED, call("join", *JOB), "expected its record", code="E0714")
            well(call("put", f"/leat/{name}/head", "{}"))
        with tool(cluster, name) as call:
            is_outcome(REFUSED, call("read"), "/head` is damaged", code="E0714")


# --- Room ---


def test_no_space():
    """The alarm: a write is unknown, reads go on; behind compaction and defragmentation it goes on."""
    with etcd.Etcd(path("full"), is_fast=True, options=["--quota-backend-bytes", str(2 << 20)]) as cluster:
        with tool(cluster, "full", request_ms=loaded_ms(1500)) as call:
            become_leader(call)
            well(call("publish", 1))
            answer = call("fill", "x", 1000, 50000)
            assert (answer["outcome"], answer["error"]) == (UNKNOWN, NO_SPACE) and answer["filled"] > 5, answer
            is_outcome(UNKNOWN, call("publish", 2), "room in etcd", "alarm disarm", "not known")
            status = well(call("status"))
            assert status["out_of_space"] and status["bytes"] > 1 << 20, status
            head = well(call("read"))["head"]
            assert head["epoch"] == 1
            cluster.call("kv/deleterange", {"key": "eA==", "range_end": "eQ=="})
            well(call("compact", well(call("get", "x"))["revision"]))
            cluster.call("maintenance/defragment", {})
            alarms = cluster.call("maintenance/alarm", {"action": "GET"})["alarms"]
            for alarm in alarms:
                cluster.call("maintenance/alarm", {**alarm, "action": "DEACTIVATE"})
            known(call, "publish", 2)
            assert not well(call("status"))["out_of_space"]


def test_many_heads_fit():
    """The leader's compaction keeps the file small: as many heads without it do not fit. LEAT_TEST_HEADS: so many, in 64 MiB, with leat's own
    interval of compaction (`./dev soak cluster heads`)."""
    heads, is_soak = int(os.environ.get("LEAT_TEST_HEADS", 6000)), "LEAT_TEST_HEADS" in os.environ
    mib, step = (64, 20000) if is_soak else (1, 6000)
    quota = ["--quota-backend-bytes", str(mib << 20), *([] if is_soak else ["--snapshot-count", "2000"])]
    with etcd.Etcd(path("heads"), is_fast=True, options=quota) as cluster:
        with tool(cluster, "heads", **({} if is_soak else {"compact_every": 500})) as call:
            become_leader(call)
            begin = time.monotonic()
            for first in range(0, heads, step):
                count = min(step, heads - first)
                assert well(call("publish", first + 1, count))["published"] == count
                status = well(call("status"))
                print(f"#   {first + count} heads in {time.monotonic() - begin:.1f} s: {status['bytes']} bytes, {status['in_use']} in use", flush=True)
                assert not status["out_of_space"] and status["bytes"] < mib << 20, status
            head = well(call("read"))["head"]
            assert head["epoch"] == heads


# --- Two leaders, at random ---


def test_interleavings():
    """1,000 rounds of steps of two workers in random order, leases revoked at random: each head follows the one before."""
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    name = f"n{next(NAMES)}"
    with tool(name=name) as a, tool(name=name) as b, tool(name=name) as judge:
        start = well(judge("put", f"{name}start", "1"))["revision"]
        said, epoch = [], 0
        for call in (a, b):
            well(call("join", *JOB))
        for _ in range(1000):
            call = rng.choice((a, b))
            step = rng.choices(("publish", "campaign", "revoke", "resign", "place"), (55, 30, 7, 3, 5))[0]
            if step == "publish":
                epoch += 1
                answer = call("publish", epoch)
                assert answer["outcome"] in (DONE, REFUSED), (seed, answer)
                said += [epoch] if answer["outcome"] == DONE else []
            elif step == "revoke":  # as if it had expired, without the worker's knowing
                judge("revoke", call("member")["lease"])
            elif step == "campaign":
                answer = call("campaign")
                if answer["outcome"] == DONE:
                    well(call("read"))
                    well(call("begin"))
                elif answer["leader"] == 0:
                    call("leave")
                    well(call("join", *JOB))
            else:
                call(step, "somewhere")
        check_history(judge, name, start, said, seed)


def check_history(judge, name, start, said, seed):
    """The heads since that revision are those that were said to be published, each behind the one before, each of the
    incarnation that was the newest then."""
    judge("watch", f"/leat/{name}/", 1, start)
    heads, writers, before, incarnation = [], set(), 0, 0
    while len(heads) < len(said):
        for event in next_of(judge, "events")["events"]:
            key = event["key"].split("/")[-1]
            record = json.loads(event["value"]) if key in ("head", "incarnation") else None
            if key == "incarnation":
                assert record["incarnation"] == incarnation + 1, (seed, record, incarnation)
                incarnation += 1
            elif key == "head":
                assert (record["previous"], record["incarnation"]) == (before, incarnation), (seed, record, before, incarnation)
                before = event["mod"]
                heads.append(record["epoch"])
                writers.add(record["writer"])
    assert heads == said and len(writers) > 10, (seed, heads[-3:], said[-3:], len(writers))
    print(f"#   {len(heads)} heads of {len(writers)} leaders, {incarnation} incarnations; seed {seed}")


def main():
    if etcd.missing():
        print(f"ok - cluster_etcd # SKIP {etcd.missing()}")
        return 77
    chosen = {name: test for name, test in globals().items()
              if name.startswith("test_") and (len(sys.argv) < 3 or name in sys.argv[2:])}
    with FOLDER, etcd.Etcd(path("one"), is_fast=True, options=PROGRESS) as one:
        ONE.append(one)
        status = tap.run(chosen, threads=3)
    said = b"".join(etcd.Tool.said)
    leaked = [secret for secret in (PASSWORD, ROOT) if secret.encode() in said]
    print(f"{'not ok' if leaked else 'ok'} - test_no_password_is_said")
    return 1 if leaked else status


if __name__ == "__main__":
    sys.exit(main())
