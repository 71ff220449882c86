"""A TCP proxy for Kafka's protocol: between clients and the PROXYn listener of a broker, which tells clients to come
here. It knows where requests and answers begin, so it can cut a connection in the middle of a certain one."""

import asyncio
import collections
import random
import socket
import struct
import threading

# Those requests that tests ask for by name: Kafka's numbers.
APIS = {"Produce": 0, "Fetch": 1, "Metadata": 3, "FindCoordinator": 10, "InitProducerId": 22, "AddPartitionsToTxn": 24,
        "AddOffsetsToTxn": 25, "EndTxn": 26, "TxnOffsetCommit": 28}
NAMES = {number: name for name, number in APIS.items()}
QUEUED_FRAMES_MAX = 16


class Cut:
    """Where to cut. api: a name of APIS. place: "request": it does not get to the broker; "half": half of it does;
    "answer": the broker does it, its answer is lost; "half answer": half of the answer comes. skip: so many
    requests pass before. times: how many connections are cut."""

    PLACES = ("request", "half", "answer", "half answer", "hold")

    def __init__(self, api, place, skip, times, seconds=0.0):
        assert place in self.PLACES
        self.api, self.place, self.skip, self.times, self.seconds = APIS[api], place, skip, times, seconds


class Connection:
    def __init__(self, reader, writer):
        self.to_client, self.from_client = writer, reader
        self.to_broker = self.from_broker = None
        self.asked = {}  # correlation id: (api, Cut or None)
        self.tasks = []

    def abort(self):
        """Ends it as a broken network does: by a reset, unsent bytes are gone."""
        for writer in (self.to_client, self.to_broker):
            if writer is not None and not writer.transport.is_closing():
                connected = writer.get_extra_info("socket")
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

    def close(self):
        """What was sent still arrives."""
        for task in self.tasks:
            task.cancel()
        for writer in (self.to_client, self.to_broker):
            if writer is not None:
                writer.close()


class Proxy:
    """Begins at once; close() ends it. All methods may be called from the test's thread while clients are connected.

    latency: seconds that each request and each answer takes longer.
    listening: a socket that listens already, of another place.
    requests: Counter by name of those that clients sent. cuts: how many connections were cut by cut_at."""

    def __init__(self, port, broker_port, listening=None):
        self.port, self.broker_port, self.latency = port, broker_port, 0.0
        self.requests, self.cuts = collections.Counter(), 0
        self.stall_chance, self.stall_seconds, self.random = 0.0, 0.0, random.Random(0)
        self.connections, self.rules, self.is_refusing = set(), [], False
        self.loop = asyncio.new_event_loop()
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.listening = listening or socket.create_server(("127.0.0.1", port), backlog=128)  # OSError where it is taken
        self.thread = threading.Thread(target=self.run, name=f"proxy {port}", daemon=True)
        self.thread.start()

    # --- what a test does ---------------------------------------------------------------------------------------
    def lose(self, chance, seconds, seed=1):
        """Loss as TCP shows it: with that chance a request or answer, and what follows it, is held so long."""
        self.random = random.Random(seed)
        self.stall_chance, self.stall_seconds = chance, seconds

    def pause(self):
        """Nothing flows, connections stay."""
        self.call(self.flowing.clear)

    def resume(self):
        self.call(self.flowing.set)

    def cut(self):
        """Breaks all connections; new ones are welcome."""
        self.call(self.abort_all)

    def refuse(self):
        """Breaks all connections, and every new one at once, until accept()."""
        self.is_refusing = True
        self.cut()

    def accept(self):
        self.is_refusing = False

    def cut_at(self, api, place, skip=0, times=1):
        """See Cut."""
        rule = Cut(api, place, skip, times)
        self.call(lambda: self.rules.append(rule))

    def hold_at(self, api, seconds, skip=0, times=1):
        """Such a request gets to the broker, and what follows it on its connection, after so many seconds: as if the broker
        had stood still."""
        rule = Cut(api, "hold", skip, times, seconds)
        self.call(lambda: self.rules.append(rule))

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.listening.close()

    # --- in the thread ------------------------------------------------------------------------------------------
    def call(self, function):
        """Runs it in the thread and waits."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (function(), done.set()))
        done.wait(10)

    def run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.serve, sock=self.listening))
        self.loop.run_forever()
        server.close()
        self.abort_all()
        self.loop.run_until_complete(asyncio.sleep(0))  # those just accepted get a task
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def abort_all(self):
        for connection in list(self.connections):
            connection.abort()

    async def serve(self, reader, writer):
        connection = Connection(reader, writer)
        self.connections.add(connection)
        try:
            if self.is_refusing:
                return
            opened = await asyncio.open_connection("127.0.0.1", self.broker_port)
            connection.from_broker, connection.to_broker = opened
            there, back = asyncio.Queue(QUEUED_FRAMES_MAX), asyncio.Queue(QUEUED_FRAMES_MAX)
            connection.tasks = [asyncio.ensure_future(part) for part in (
                self.take(connection.from_client, there), self.give(connection, there, self.send_request),
                self.take(connection.from_broker, back), self.give(connection, back, self.send_answer))]
            await asyncio.wait(connection.tasks, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # the broker is down, or the proxy closes
        finally:
            connection.close()
            self.connections.discard(connection)

    async def read_frame(self, reader):
        head = await reader.readexactly(4)
        return head + await reader.readexactly(struct.unpack(">i", head)[0])

    async def take(self, reader, queue):
        """Frames from a socket into the queue, each with the time at which it may go on."""
        try:
            while True:
                frame = await self.read_frame(reader)
                await queue.put((self.loop.time() + self.latency, frame))
        except (asyncio.IncompleteReadError, OSError):
            await queue.put((self.loop.time() + self.latency, None))

    async def give(self, connection, queue, send):
        while True:
            due, frame = await queue.get()
            if due > self.loop.time():
                await asyncio.sleep(due - self.loop.time())
            if self.stall_chance and self.random.random() < self.stall_chance:
                await asyncio.sleep(self.stall_seconds)
            await self.flowing.wait()
            if frame is None:
                return
            try:
                if not await send(connection, frame):
                    connection.abort()
                    return
            except OSError:
                return

    async def send_request(self, connection, frame):
        """False where the connection is cut."""
        api, _, correlation = struct.unpack_from(">hhi", frame, 4)
        self.requests[NAMES.get(api, str(api))] += 1
        cut = self.cut_for(api)
        if cut and cut.place == "hold":
            await asyncio.sleep(cut.seconds)
            cut = None
        if cut and cut.place in ("request", "half"):
            if cut.place == "half":
                connection.to_broker.write(frame[:len(frame) // 2])
                await connection.to_broker.drain()
            self.cuts += 1
            return False
        connection.asked[correlation] = cut
        connection.to_broker.write(frame)
        await connection.to_broker.drain()
        return True

    async def send_answer(self, connection, frame):
        cut = connection.asked.pop(struct.unpack_from(">i", frame, 4)[0], None)
        if cut:
            if cut.place == "half answer":
                connection.to_client.write(frame[:len(frame) // 2])
                await connection.to_client.drain()
            self.cuts += 1
            return False
        connection.to_client.write(frame)
        await connection.to_client.drain()
        return True

    def cut_for(self, api):
        for cut in self.rules:
            if cut.api != api or cut.times == 0:
                continue
            if cut.skip > 0:
                cut.skip -= 1
                continue
            cut.times -= 1
            return cut
        return None


class TlsProxy(Proxy):
    """For what it cannot read: its frames are TLS records. cut_at() and hold_at() it has not, but tear()."""

    def __init__(self, port, broker_port):
        self.tear_chance = 0.0
        super().__init__(port, broker_port)

    def tear(self, chance, seed=2):
        """With that chance a record gets through by half, and its connection breaks."""
        self.random = random.Random(seed)
        self.tear_chance = chance

    async def read_frame(self, reader):
        head = await reader.readexactly(5)  # type, version, bytes
        return head + await reader.readexactly(struct.unpack_from(">H", head, 3)[0])

    async def pass_on(self, writer, frame):
        is_torn = self.tear_chance > 0 and self.random.random() < self.tear_chance
        writer.write(frame[:len(frame) // 2] if is_torn else frame)
        await writer.drain()
        self.cuts += is_torn
        return not is_torn

    async def send_request(self, connection, frame):
        return await self.pass_on(connection.to_broker, frame)

    async def send_answer(self, connection, frame):
        return await self.pass_on(connection.to_client, frame)
