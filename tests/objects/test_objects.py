#!/usr/bin/env python3
"""The object store, state/objects: in a directory, and against a real s3proxy behind a proxy that tears, delays, refuses and
changes (rig.py). No key may be in anything that was said.

    test_objects.py STORE_TOOL [--clock JUMPING_CLOCK]     --clock: only the test with a clock that is wrong
"""

import contextlib
import hashlib
import os
import random
import sys
import tempfile
import time

import rig
import tap

TOOL = os.path.abspath(sys.argv[1])
CLOCK = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
BUCKET = "leat-test"
PART = 5 << 20
ODD = "a key/with spaces & +plus/ünïcode 漢字 ~!*'()%25"
FOLDER = tempfile.TemporaryDirectory(prefix="leat-objects-")
STORE = []
COUNT = [0]


def path(name):
    COUNT[0] += 1
    return os.path.join(FOLDER.name, f"{COUNT[0]}-{name}")


def make_file(count, seed=1):
    name = path("made")
    with open(name, "wb") as file:
        file.write(random.Random(seed).randbytes(count))
    return name


def read(name):
    with open(name, "rb") as file:
        return file.read()


def digest(name):
    return hashlib.sha256(read(name)).hexdigest()


def well(answer):
    assert answer["ok"] and not answer["diags"], answer
    return answer


def failed(answer, code, *words):
    assert not answer["ok"] and not answer["missing"], answer
    assert [d["code"] for d in answer["diags"]] == [code], answer
    text = answer["diags"][0]["message"] + " / " + (answer["diags"][0]["hint"] or "")
    assert answer["diags"][0]["hint"] or answer["diags"][0]["cause"], answer
    for word in words:
        assert word in text, (word, text)
    return answer


def tool(prefix, store=None, **more):
    """A tool on a prefix of its own. Options of Tool are not of the environment."""
    options = {name: more.pop(name) for name in ("tries", "pause_ms", "stall_s", "file_bytes_max") if name in more}
    return rig.Tool(TOOL, f"s3://{BUCKET}/{prefix}", (store or STORE[0]).environment(**more), **options)


@contextlib.contextmanager
def fault(kind, happens=1, **more):
    """What is put in is taken out; and it must have happened."""
    one = STORE[0].fault(kind, **more)
    yield one
    STORE[0].faults.remove(one)
    assert one.happened >= happens, (kind, one.happened, STORE[0].seen[-3:])


# --- What both kinds of store do ---


def round_trip(call):
    """Everything, on an empty store."""
    well(call("check"))
    assert well(call("list", ""))["gave"] == []
    for name, text in (("b/2", "two"), ("b/1", "one"), ("b0", "neither"), ("empty", ""), (ODD, "odd")):
        well(call("put", name, text))
    listed = [["b0", 7], ["b/1", 3], ["b/2", 3], ["empty", 0], [ODD, 3]]
    assert well(call("list", ""))["gave"] == sorted(listed, key=lambda entry: entry[0].encode()), call("list", "")
    assert well(call("list", "b/"))["gave"] == [["b/1", 3], ["b/2", 3]]
    assert well(call("list", ODD[:20]))["gave"] == [[ODD, 3]]
    for name, text in ((ODD, b"odd"), ("empty", b"")):
        out = path("got")
        well(call("get", name, 100, out))
        assert read(out) == text
        assert well(call("head", name))["gave"] == len(text)
    out = path("range")
    well(call("range", "b0", 2, 3, out))
    assert read(out) == b"ith"
    well(call("range", "b0", 7, 0, out))
    assert read(out) == b""
    failed(call("range", "b0", 5, 3, out), "E0711", "7 bytes" if call.is_s3 else "found 7")
    failed(call("range", "b0", 50, 3, out), "E0711")
    failed(call("get", "b0", 6, out), "E0711", "at most 6 bytes")
    well(call("get", "b0", 7, out))
    for words in (("get", "none", 9, out), ("range", "none", 0, 1, out), ("head", "none"), ("get_file", "none", 1, path("x"))):
        answer = call(*words)
        assert answer["missing"] and not answer["diags"], answer
    well(call("delete", "b/1"))
    well(call("delete", "b/1"))
    assert call("head", "b/1")["missing"]
    well(call("put", "b/2", "two"))  # the same bytes once more
    for bad in ("", "/a", "a/", "a//b", ".a", "a/../b", "a\x01b", "x" * 901):
        failed(call("put", bad, "text"), "E0711", "cannot be the name")


def files_of_sizes(call):
    for count in (0, 1, PART, 2 * PART + 12345):
        made, out = make_file(count, seed=count), path("back")
        before = call("check")["up"]
        after = well(call("put_file", f"file-{count}", made, count))["up"]
        assert count <= after - before <= count + 4096, (count, after - before)
        assert well(call("head", f"file-{count}"))["gave"] == count
        well(call("get_file", f"file-{count}", count, out))
        assert digest(out) == digest(made)
    failed(call("get_file", "file-1", 2, path("two")), "E0711", "expected `file-1` with 2 bytes, found 1")
    there = make_file(3)
    failed(call("get_file", "file-1", 1, there), "E0605")
    assert len(read(there)) == 3
    answer = call("put_file", "short", make_file(10), 11)
    assert [d["code"] for d in answer["diags"]] == ["E0601"], answer
    assert call("head", "short")["missing"]
    answer = call("put_file", "short", make_file(PART + 10), PART + 11)
    assert [d["code"] for d in answer["diags"]] == ["E0601"], answer
    assert call("head", "short")["missing"]
    assert well(call("abandon", 0))["gave"] == 0  # a put that fails cleans up


# --- In a directory ---


def file_tool(folder, **more):
    options = {name: more.pop(name) for name in ("file_bytes_max",) if name in more}
    one = rig.Tool(TOOL, f"file:{folder}", {**os.environ, **more}, **options)
    one.is_s3 = False
    return one


def test_directory():
    folder = path("a shared ünï directory")
    with file_tool(folder) as call:
        round_trip(call)
    with file_tool(folder) as call:
        files_of_sizes(call)
        failed(call("put", "b/2", "TWO"), "E0711", "to have the same bytes", "of its own")
        failed(call("put", "b/2", "two and more"), "E0711")
        assert read(os.path.join(folder, "b", "2")) == b"two"
        failed(call("put", "b0/below", "text"), "E0710")  # a file is no directory



def test_directory_killed():
    """A kill at each step leaves no part of an object, and what is left behind is removed."""
    folder = path("killed")
    for point in ("objects.write", "objects.fsync", "objects.rename", "objects.fsync_parent"):
        made, count = make_file(3 << 20), 3 << 20
        with file_tool(folder, LEAT_FAILPOINTS=f"{point}=kill@{2 if point == 'objects.write' else 1}") as call:
            try:
                raise AssertionError(call("put_file", point, made, count))
            except EOFError:
                pass
        with file_tool(folder) as call:
            names = [name for name, _ in well(call("list", ""))["gave"]]
            assert (point in names) == (point == "objects.fsync_parent"), (point, names)
            well(call("put_file", point, made, count))
            assert well(call("abandon", 3600))["gave"] == 0
            assert well(call("abandon", 0))["gave"] == (0 if point == "objects.fsync_parent" else 1)
            assert well(call("head", point))["gave"] == count


def test_directory_full():
    """A disk that is full, in the store and at home: the limit of a file's size plays it, and a failpoint says ENOSPC."""
    folder, made = path("full"), make_file(2 << 20)
    with file_tool(folder, file_bytes_max=1 << 20) as call:
        answer = failed(call("put_file", "large", made, 2 << 20), "E0710")
        assert "File too large" in answer["diags"][0]["cause"], answer
        well(call("put", "small", "fits"))
        assert [name for name, _ in well(call("list", ""))["gave"]] == ["small"]
        assert well(call("abandon", 0))["gave"] == 0
    with file_tool(folder) as call:
        well(call("put_file", "large", made, 2 << 20))
    with file_tool(folder, file_bytes_max=1 << 20) as call:
        out = path("no room")
        failed(call("get_file", "large", 2 << 20, out), "E0605")
        assert not os.path.exists(out)
    with file_tool(folder, LEAT_FAILPOINTS="objects.restore=error:ENOSPC@1,objects.write=error:ENOSPC@1") as call:
        failed(call("get_file", "large", 2 << 20, path("no room")), "E0608", "make room")
        failed(call("put", "other", "text"), "E0710", "make room")


def test_bad_addresses():
    for url in ("", "ftp://x", "s3:/bucket/x", "file:relative", "file:", "s3://", "s3://a", "s3://bucket/a//b",
                "s3://bucket/.a", "s3://bu cket/a", "file:/a\x07b"):
        with rig.Tool(TOOL, url, {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}) as call:
            failed(call.opened, "E0710")


def test_bad_environment():
    good = {"AWS_ACCESS_KEY_ID": rig.KEY, "AWS_SECRET_ACCESS_KEY": rig.SECRET}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    for change, word in (({"AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY"), ({"AWS_ACCESS_KEY_ID": ""}, "AWS_ACCESS"),
                         ({"AWS_SECRET_ACCESS_KEY": rig.SECRET + "\n"}, "newline"), ({"AWS_REGION": "eu central"}, "AWS_REGION"),
                         ({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "AWS_ENDPOINT_URL"),
                         ({"AWS_ENDPOINT_URL": f"http://u:{rig.SECRET}@127.0.0.1:9"}, "AWS_ENDPOINT_URL"),
                         ({"LEAT_S3_ADDRESSING": "both"}, "LEAT_S3_ADDRESSING")):
        with rig.Tool(TOOL, "s3://bucket/job", {**plain, **good, **change}) as call:
            failed(call.opened, "E0710", word)
    with rig.Tool(TOOL, "s3://bucket/job", {**plain, **good, "AWS_ENDPOINT_URL": "http://store.example:80/"}) as call:
        assert call.opened["ok"] and [d["code"] for d in call.opened["diags"]] == ["E0609"], call.opened


# --- S3 ---


def s3_tool(prefix, **more):
    one = tool(prefix, **more)
    one.is_s3 = True
    return one


def test_s3():
    with s3_tool("round trip/ünï") as call:
        round_trip(call)
    with s3_tool("sizes") as call:
        files_of_sizes(call)


def test_s3_new_names():
    """Of several that put an object one alone has put it, if the store can tell; else the caller is told that it cannot."""
    def put(call, name="new"):
        return well(call("put_new", name, "text"))["gave"]
    with rig.Tool(TOOL, f"file:{path('store')}", dict(os.environ)) as call:
        assert [put(call) for _ in range(2)] == ["alone", "taken"]
    with tool("new") as call:
        with fault("status", status=409, body="<Error><Code>ConditionalRequestConflict</Code></Error>", happens=1):
            assert put(call) == "alone"
        assert put(call) == "taken"
        assert put(call, "other") == "alone"
        STORE[0].honours = False
        assert put(call) == put(call, "third") == "unknown"
        with fault("status", status=501, body="<Error><Code>NotImplemented</Code></Error>", happens=1):
            assert put(call, "fourth") == "unknown"
        STORE[0].honours = True
        assert len(well(call("list", ""))["gave"]) == 4


def test_s3_virtual_host():
    """The bucket as part of the host: BUCKET.localhost, which libcurl takes to 127.0.0.1."""
    with tool("virtual", AWS_ENDPOINT_URL_S3=f"http://localhost:{STORE[0].port}", LEAT_S3_ADDRESSING="virtual") as call:
        well(call("put", ODD, "there"))
        assert well(call("list", ""))["gave"] == [[ODD, 5]]
        method, seen, headers, _ = STORE[0].seen[-1]
        assert method == "GET" and seen.startswith("/?list-type=2"), seen
        assert headers["Host"] == f"{BUCKET}.localhost:{STORE[0].port}", headers
    with tool("virtual") as call:
        assert well(call("list", ""))["gave"] == [[ODD, 5]]


def test_s3_pages():
    """A list in pages of two: the proxy asks for fewer than leat does, and s3proxy checks no signature of what it changed."""
    with tool("pages") as call:
        names = [f"n/{i:02}" for i in range(7)]
        for name in names:
            well(call("put", name, "x"))
        prefix = "pages/"
        entry = "<Contents><Key>{}</Key><Size>1</Size></Contents>"

        def page(some, token):
            more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else ""
            return ("<ListBucketResult>" + "".join(entry.format(prefix + name) for name in some) + more + "</ListBucketResult>")

        with fault("status", status=200, body=page(names[:3], "a+/=b"), path="max-keys=1000&prefix"), \
                fault("status", status=200, body=page(names[3:], ""), path="^/leat-test/.continuation-token=a%2B%2F%3Db&list"):
            assert [name for name, _ in well(call("list", ""))["gave"]] == names
        with fault("status", status=200, body=page(names[:3], "one"), times=2, happens=2):
            failed(call("list", ""), "E0711", "do not rise")
        with fault("status", status=200, body=page([], "one"), times=9, happens=2):
            failed(call("list", ""), "E0711", "for ever")
        with fault("status", status=200, body=page(["x"], "").replace("pages/", "other/")):
            failed(call("list", ""), "E0711", "do not begin with the prefix")


def test_s3_passing_errors():
    """What passes is tried again, and nobody sees it."""
    with tool("passing") as call:
        made, count = make_file(PART + 1), PART + 1
        for kind, more in (("status", {"status": 500}), ("status", {"status": 503}), ("status", {"status": 429}),
                           ("status", {"status": 408}), ("lost_answer", {}), ("torn_upload", {}), ("dripping", {}),
                           ("status", {"status": 400, "body": "<Error><Code>RequestTimeout</Code></Error>"})):
            name = f"{kind}-{more.get('status', '')}"
            for times in (1,) if kind == "dripping" else (1, 3):
                with fault(kind, method="PUT", times=times, happens=times, **more):
                    well(call("put", name, "text"))
                with fault(kind if kind != "torn_upload" else "torn_answer", method="GET", times=times, happens=times, **more):
                    out = path("got")
                    well(call("get", name, 100, out))
                    assert read(out) == b"text"
            if name in ("status-500", "lost_answer-", "torn_upload-"):
                with fault(kind, method="PUT", after=1, path="partNumber", **more):
                    well(call("put_file", f"large {name}", made, count))
        assert call("check")["retries"] >= 40, call("check")
        for kind, more in (("torn_answer", {}), ("changed_header", {"name": "content-range", "value": "bytes 7-9/5242881"})):
            for times in (1, 3):
                with fault(kind, method="GET", path="large", after=1, times=times, happens=times, **more):
                    out = path("back")
                    well(call("get_file", "large torn_upload-", count, out))
                    assert digest(out) == digest(made), kind


def test_s3_torn_range_goes_on():
    """A torn range is got from where it was torn."""
    with tool("torn") as call:
        made = make_file(PART)
        well(call("put_file", "large", made, PART))
        before = call("check")["down"]
        with fault("torn_answer", method="GET", path="large", times=2, happens=2):
            after = well(call("get_file", "large", PART, path("back")))["down"]
        assert after - before < PART + 8192, after - before


def test_s3_lasting_errors():
    """What does not pass: who, what, and the way out."""
    with tool("lasting") as call:
        with fault("status", status=503, times=4, happens=4):
            failed(call("put", "name", "text"), "E0710", f"s3://{BUCKET}/lasting", "cannot put `name`", "503", "(4 tries)", "down")
        requests = call("check")["requests"]
        for code, word in (("AccessDenied", "s3:PutObject"), ("ExpiredToken", "fresh keys"), ("NoSuchBucket", "make the bucket"),
                           ("AuthorizationHeaderMalformed", "AWS_REGION")):
            with fault("status", status=403, body=f"<Error><Code>{code}</Code><Message>it is so</Message></Error>"):
                failed(call("put", "name", "text"), "E0710", f"status 403, {code}: it is so", word)
        assert call("check")["requests"] == requests + 5  # none was tried again
        with fault("status", status=301, headers={"Location": "http://127.0.0.1:1/"}):
            failed(call("check"), "E0710", "AWS_REGION")
        with fault("status", status=404, body="<Error><Code>NoSuchBucket</Code></Error>"):
            failed(call("get", "name", 9, path("got")), "E0710", "make the bucket")
    with tool("lasting", AWS_SECRET_ACCESS_KEY="another") as call:
        failed(call("check"), "E0710", "SignatureDoesNotMatch")
    with tool("lasting", AWS_ACCESS_KEY_ID="another") as call:
        failed(call("check"), "E0710", "InvalidAccessKeyId")
    with rig.Tool(TOOL, "s3://no-such-bucket/job", STORE[0].environment()) as call:
        failed(call("check"), "E0710", "NoSuchBucket", "make the bucket")
    with tool("lasting", AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{rig.free_port()}") as call:
        failed(call("check"), "E0710", "is the store up")


def test_s3_refused_in_the_middle():
    """403 within an upload in parts: an error, and no part stays."""
    denied = {"status": 403, "body": "<Error><Code>AccessDenied</Code><Message>no more</Message></Error>"}
    with tool("middle") as call:
        made, count = make_file(PART + 1), PART + 1
        with fault("status", method="PUT", path="partNumber=2", **denied):
            failed(call("put_file", "large", made, count), "E0710", "put a part of `large`", "no more")
        assert call("head", "large")["missing"]
        assert well(call("abandon", 0))["gave"] == 0
        well(call("put_file", "large", made, count))
        with fault("status", method="GET", path="large", after=1, **denied):
            out = path("back")
            failed(call("get_file", "large", count, out), "E0710", "get `large`")
            assert not os.path.exists(out)


def test_s3_completing():
    """The answer to the last request of an upload: lost, late, an error behind status 200."""
    with tool("completing") as call:
        made, count = make_file(PART + 1), PART + 1
        error = "<Error><Code>InternalError</Code><Message>try again</Message></Error>"
        with fault("lost_answer", method="POST", path="uploadId"):
            well(call("put_file", "lost", made, count))
        with fault("status", method="POST", path="uploadId", status=200, body="  \n" + error):
            well(call("put_file", "error", made, count))
        with fault("status", method="POST", path="uploadId", status=200, body=error, times=9, happens=4):
            failed(call("put_file", "never", made, count), "E0710", "try again")
        with fault("rewritten", method="POST", path="uploadId", texts=("-2", "-3")):
            well(call("put_file", "other digest", made, count))  # then its size is asked for
        for name in ("lost", "error", "other digest"):
            assert well(call("head", name))["gave"] == count
        assert call("head", "never")["missing"]


def test_s3_wrong_bytes():
    """Bytes that change on the way are noticed, both ways; those that stay wrong are E0711."""
    with tool("wrong") as call:
        for times in (1, 3):
            with fault("changed_upload", method="PUT", times=times, happens=times):
                well(call("put", "up", "text"))
            with fault("changed_header", method="PUT", name="etag", value='"' + "0" * 32 + '"', times=times, happens=times):
                well(call("put", "up", "text"))
            with fault("changed_answer", method="GET", times=times, happens=times):
                out = path("got")
                well(call("get", "up", 100, out))
                assert read(out) == b"text"
        with fault("changed_answer", method="GET", times=9, happens=4):
            failed(call("get", "up", 100, path("got")), "E0711", "digest (MD5)", "another checkpoint")
        with fault("changed_header", method="PUT", name="etag", value='"' + "0" * 32 + '"', times=9, happens=4):
            failed(call("put", "up", "text"), "E0711", "digest (MD5)")
        with fault("status", status=200, body="<html>Welcome</html>", times=4, happens=4):
            failed(call("check"), "E0711", "another one")
        with fault("status", status=200, body='<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', times=4, happens=4):
            failed(call("check"), "E0711", "document type")
        with fault("status", status=200, body="whole", method="GET", times=4, happens=4):
            failed(call("range", "up", 1, 2, path("got")), "E0711", "another answer came")


def test_s3_stalls():
    """A store that does not answer is given up after a while, and tried again."""
    with tool("stalls", stall_s=1) as call:
        begin = time.monotonic()
        with fault("slow", method="PUT", seconds=30):
            well(call("put", "late", "text"))
        assert time.monotonic() - begin < 20


def test_s3_cancelled():
    with tool("cancelled", stall_s=60) as call:
        with fault("slow", method="PUT", seconds=60):
            well(call("cancel_in", 200))
            begin = time.monotonic()
            failed_answer = call("put", "late", "text")
            assert [d["code"] for d in failed_answer["diags"]] == ["E0710"], failed_answer
            assert "given up" in failed_answer["diags"][0]["message"], failed_answer
            assert time.monotonic() - begin < 30
        assert not call("check")["ok"]
        assert not call("put", "later", "text")["ok"]


def test_s3_killed_upload():
    """What a killed process began is found, and ended; the put after it goes well."""
    with tool("killed", LEAT_FAILPOINTS="objects.part=kill@1") as call:
        made, count = make_file(PART + 1), PART + 1
        try:
            raise AssertionError(call("put_file", "large", made, count))
        except EOFError:
            pass
    with tool("killed") as call:
        assert well(call("list", ""))["gave"] == []
        assert well(call("abandon", 3600))["gave"] == 0
        assert well(call("abandon", 0))["gave"] == 1
        assert well(call("abandon", 0))["gave"] == 0
        well(call("put_file", "large", made, count))


def test_s3_refused_clock():
    """A store whose clock is another: its time is taken over, once, and said where that does not help."""
    skewed = {"status": 403, "body": "<Error><Code>RequestTimeTooSkewed</Code><Message>late</Message></Error>"}
    with tool("clock") as call:
        there = time.strftime(rig.DATE, time.gmtime(time.time() + 1200))
        with fault("status", headers={"Date": there}, **skewed, times=2, happens=2):
            failed(call("check"), "E0710", "RequestTimeTooSkewed", "clock")
    with tool("clock") as call:
        with fault("status", headers={"Date": time.strftime(rig.DATE)}, **skewed):
            failed(call("check"), "E0710", "RequestTimeTooSkewed", "clock")  # the clocks agree: nothing to correct


def test_s3_keys_are_not_said():
    """Comes last: the server repeats all that it was sent, and all that was said in all tests is looked through."""
    with tool("secrets", AWS_SESSION_TOKEN=rig.TOKEN) as call:
        with fault("echo"):
            answer = failed(call("put", "name", "text"), "E0710")
        assert "***" in answer["diags"][0]["message"], answer
    said = b"".join(rig.Tool.said)
    assert len(said) > 10000
    for secret in (rig.KEY, rig.SECRET, rig.TOKEN):
        assert secret.encode() not in said, said[max(0, said.index(secret.encode()) - 300):][:600]


def clock_is_wrong():
    sys.path.append(os.path.join(rig.ROOT, "tests", "clock"))
    import jumps
    with jumps.Clock(CLOCK) as clock:
        for minutes in (20, -20):
            clock.set(minutes * 60 * 1000000)
            environment = clock.environment(**STORE[0].environment())
            with rig.Tool(TOOL, f"s3://{BUCKET}/clock {minutes}", environment) as call:
                answer = well(call("put", "name", "text"))
                assert (answer["requests"], answer["retries"]) == (2, 1), answer
                assert well(call("head", "name"))["requests"] == 3
            with rig.Tool(TOOL, f"s3://{BUCKET}/clock {minutes}", environment) as call:
                assert well(call("head", "name"))["retries"] == 1  # a refused HEAD says no reason
    print("ok - clock 20 minutes off, both ways")


def main():
    names = {name: test for name, test in globals().items() if name.startswith("test_")}
    local = {name: test for name, test in names.items() if not name.startswith("test_s3")}
    try:
        rig.class_path()
    except rig.install.Missing as error:
        print("\n".join(f"ok - {name} # SKIP no s3proxy: {error}" for name in names if name not in local))
        return 77 if CLOCK else tap.run(local)
    with rig.Store() as store:
        STORE.append(store)
        store.make_bucket(BUCKET)
        if CLOCK:
            clock_is_wrong()
            return 0
        return tap.run(names)


if __name__ == "__main__":
    sys.exit(main())
