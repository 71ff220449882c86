"""HTTP/2 by hand: frames over a socket, heads as HPACK literals, and as much of HPACK as an encoder without a dynamic
table needs to be read. A client that can break every rule."""

import collections
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, PROTOCOL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 6, 7, 8, 11
TABLE_SIZE, WINDOW_SIZE = 1, 4

STATIC = [None, (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
          (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
          (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500")]
NAMES = """accept-charset accept-encoding accept-language accept-ranges accept access-control-allow-origin age allow
authorization cache-control content-disposition content-encoding content-language content-length content-location
content-range content-type cookie date etag expect expires from host if-match if-modified-since if-none-match if-range
if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization range referer
refresh retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary via
www-authenticate""".split()
STATIC += [(name, "") for name in NAMES]

# Codes of RFC 7541, appendix B, by their lengths: those of up to 8 bits run on from each other.
CODES = {}


def fill_codes():
    code = 0
    for bits, letters in ((5, "012aceiost"), (6, " %-./3456789=A_bdfghlmnpru"), (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
                          (8, "&*,;XZ")):
        for letter in letters:
            CODES[(bits, code)] = letter
            code += 1
        code <<= 1


fill_codes()


def huffman(data):
    text, code, bits = "", 0, 0
    for byte in data:
        for shift in range(7, -1, -1):
            code, bits = code << 1 | byte >> shift & 1, bits + 1
            if (bits, code) in CODES:
                text, code, bits = text + CODES[(bits, code)], 0, 0
    assert bits < 8 and code == (1 << bits) - 1, "a letter that has no place in CODES"
    return text


def number(data, at, prefix):
    limit = (1 << prefix) - 1
    value, at = data[at] & limit, at + 1
    shift = 0
    while value >= limit:
        value, shift, at = value + ((data[at] & 127) << shift), shift + 7, at + 1
        if data[at - 1] < 128:
            break
    return value, at


def string(data, at):
    is_huffman = data[at] & 128
    length, at = number(data, at, 7)
    raw = data[at:at + length]
    return huffman(raw) if is_huffman else raw.decode("latin-1"), at + length


def decode(block):
    fields, at = [], 0
    while at < len(block):
        if block[at] & 128:
            index, at = number(block, at, 7)
            fields.append(STATIC[index])
            continue
        if block[at] & 0xE0 == 0x20:
            size, at = number(block, at, 5)
            assert size == 0, "the client allows no table"
            continue
        index, at = number(block, at, 6 if block[at] & 64 else 4)
        name, at = (STATIC[index][0], at) if index else string(block, at)
        value, at = string(block, at)
        fields.append((name, value))
    return fields


def literal(name, value, first=b"\0"):
    def text(one):
        one = one if isinstance(one, bytes) else one.encode()
        if len(one) < 127:
            return bytes([len(one)]) + one
        rest, length = len(one) - 127, bytes([127])
        while rest >= 128:
            rest, length = rest >> 7, length + bytes([rest & 127 | 128])
        return length + bytes([rest]) + one
    return first + text(name) + text(value)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def setting(key, value):
    return struct.pack(">HI", key, value)


def u32(value):
    return struct.pack(">I", value)


class Answer:
    def __init__(self):
        self.heads, self.body, self.is_ended, self.reset = [], b"", False, None

    @property
    def status(self):
        return int(dict(self.heads[0])[":status"]) if self.heads else None

    def field(self, name):
        return dict(self.heads[0]).get(name)


class Client:
    """A connection. `answers` by stream, `goaway` (last stream, error) and `is_closed` are filled by take()."""

    def __init__(self, port, settings=b"", preface=PREFACE, context=None, timeout=20):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            self.socket = context.wrap_socket(self.socket)
        self.bytes, self.answers, self.goaway, self.is_closed = b"", collections.defaultdict(Answer), None, False
        self.counts, self.settings = collections.Counter(), None
        self.send(preface, frame(SETTINGS, 0, 0, setting(TABLE_SIZE, 0) + settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *frames):
        """False: the server has closed the connection."""
        try:
            self.socket.sendall(b"".join(frames))
            return True
        except (ConnectionError, TimeoutError):
            return False

    def head(self, stream, path="/echo", method="POST", is_end=False, more=b"", authority="127.0.0.1"):
        block = literal(":method", method) + literal(":scheme", "http") + literal(":path", path)
        block += literal(":authority", authority) if authority else b""
        return frame(HEADERS, END_HEADERS | (END_STREAM if is_end else 0), stream, block + more)

    def data(self, stream, body, is_end=True):
        return frame(DATA, END_STREAM if is_end else 0, stream, body)

    def get(self, stream, path="/counters"):
        return self.head(stream, path, "GET", True)

    def read_frame(self):
        """False: there are no more."""
        while len(self.bytes) < 9 or len(self.bytes) < 9 + int.from_bytes(self.bytes[:3], "big"):
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionError:
                more = b""
            if not more:
                self.is_closed = True
                return False
            self.bytes += more
        length, kind, flags = int.from_bytes(self.bytes[:3], "big"), self.bytes[3], self.bytes[4]
        stream, payload = int.from_bytes(self.bytes[5:9], "big"), self.bytes[9:9 + length]
        self.bytes = self.bytes[9 + length:]
        self.counts[kind] += 1
        self.see(kind, flags, self.answers[stream], payload)
        return True

    def see(self, kind, flags, answer, payload):
        if kind in (HEADERS, DATA):
            assert not answer.is_ended, "a frame behind a stream's end"
            answer.is_ended = bool(flags & END_STREAM)
        if kind == HEADERS:
            assert flags & END_HEADERS
            answer.heads.append(decode(payload))
        elif kind == DATA:
            answer.body += payload
        elif kind == RST_STREAM:
            answer.reset = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = struct.unpack(">II", payload[:8])
        elif kind == SETTINGS and not flags & ACK:
            self.settings = dict(struct.unpack(">HI", payload[i:i + 6]) for i in range(0, len(payload), 6))
            self.send(frame(SETTINGS, ACK, 0))

    def take(self, *streams):
        """Reads until all these streams are ended or reset, or, without streams, until the server closes."""
        def is_done():
            return streams and all(self.answers[one].is_ended or self.answers[one].reset is not None for one in streams)
        while not is_done():
            if not self.read_frame():
                assert not streams, f"closed before stream {streams} was answered, GOAWAY {self.goaway}"
                return None
        return self.answers[streams[-1]]

    def ask(self, stream, path="/echo", body=b"hello", **words):
        self.send(self.head(stream, path, **words), self.data(stream, body))
        return self.take(stream)

    def refusal(self):
        """What comes until the server closes, as it is."""
        text = b""
        try:
            while more := self.socket.recv(1 << 16):
                text += more
        except ConnectionError:
            pass
        return text
