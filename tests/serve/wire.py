"""A TCP proxy of a test: a network that is slow, that cuts connections, and that damages bytes."""

import random
import socket
import threading
import time


class Wire:
    """Forwards connections to a port of this machine. Settings may change at any time."""

    def __init__(self, port, seed=1):
        self.port_there, self.rng = port, random.Random(seed)
        self.delay, self.rate, self.flips, self.is_dead = 0.0, 0, 0.0, False  # seconds; bytes/s, 0: any; share of pieces
        self.carried, self.flipped, self.cuts = 0, 0, 0
        self.pairs, self.lock, self.is_over = [], threading.Lock(), False
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.is_over:
            try:
                here, _ = self.socket.accept()
                if self.is_dead:
                    here.close()
                    continue
                there = socket.create_connection(("127.0.0.1", self.port_there))
            except OSError:
                continue
            for end in (here, there):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.pairs.append((here, there))
            for pair in ((here, there, False), (there, here, True)):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, target, is_answer):
        try:
            while True:
                data = source.recv(16384)
                if not data:
                    break
                if self.delay:
                    time.sleep(self.delay)
                if self.rate:
                    time.sleep(len(data) / self.rate)
                if is_answer and self.rng.random() < self.flips:
                    data = bytearray(data)
                    data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
                    self.flipped += 1
                target.sendall(data)
                self.carried += len(data)
        except OSError:
            pass
        for end in (source, target):
            self.shut(end)

    @staticmethod
    def shut(end):
        """Both directions, also under a thread that waits for bytes."""
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def cut(self, is_for_long=False):
        """Ends all connections; for long: and refuses new ones until mend()."""
        self.is_dead = is_for_long
        with self.lock:
            pairs, self.pairs = self.pairs, []
        self.cuts += len(pairs)
        for pair in pairs:
            for end in pair:
                self.shut(end)

    def wait_connected(self):
        while not self.pairs:
            time.sleep(0.01)

    def mend(self):
        self.is_dead = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.socket.close()
        self.cut()
