#!/usr/bin/env python3
"""A small Schema Registry for tests, on a port of its own at 127.0.0.1.

    registry.py JSON

JSON: {"schemas": {"1": {"schema": "...", ...}}, "subjects": {"name/1": {...}}, "user": "name:password", and faults:
"fail": so many first requests are answered with 503, "late": {"7": 2}: schema 7 is missing so many times first,
"slow": {"8": 30}: its answer takes so many seconds, "huge": [9]: its answer is endless, "strange": {"10": [200, "text"]},
"away": {"11": "http://..."}: its answer is a redirect.}
Prints its port, then each request's path with `!` behind it where the password was not right. Ends when its standard
input does.
"""

import base64
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Registry(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, headers=()):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def endless(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 65536)
        except OSError:
            self.close_connection = True

    def is_known(self):
        user = self.server.what.get("user")
        return user is None or self.headers.get("Authorization") == "Basic " + base64.b64encode(user.encode()).decode()

    def do_GET(self):
        what, lock = self.server.what, self.server.lock
        with lock:
            print(self.path + ("" if self.is_known() else "!"), flush=True)
            if what.get("fail", 0) > 0:
                what["fail"] -= 1
                return self.answer(503, {"error_code": 50003, "message": "not now"})
        if not self.is_known():
            return self.answer(401, {"error_code": 40101, "message": "Unauthorized"})
        kind, _, name = self.path[1:].partition("/")
        if kind == "subjects":
            found = what.get("subjects", {}).get(name.replace("/versions", "").replace("%2F", "/"))
            return self.answer(200, found) if found else self.answer(404, {"error_code": 40401, "message": "Subject not found."})
        name = name.partition("/")[2]
        if name in what.get("slow", {}):
            time.sleep(what["slow"][name])
        if name in what.get("away", {}):
            return self.answer(301, "", [("Location", what["away"][name])])
        if name in map(str, what.get("huge", [])):
            return self.endless()
        if name in what.get("strange", {}):
            return self.answer(*what["strange"][name])
        with lock:
            is_late = what.get("late", {}).get(name, 0) > 0
            if is_late:
                what["late"][name] -= 1
        found = None if is_late else what.get("schemas", {}).get(name)
        if found is None:
            return self.answer(404, {"error_code": 40403, "message": "Schema not found"})
        return self.answer(200, found)

    def log_message(self, *arguments):
        pass


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    server.daemon_threads = True
    server.what, server.lock = json.loads(sys.argv[1]), threading.Lock()
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


main()
