#!/usr/bin/env python3
"""engine/cluster/rendezvous.h against a real etcd: who the workers of an incarnation are, when workers come, die and stop.

    test_rendezvous.py ETCD_TOOL [TEST...]
"""

import contextlib
import math
import sys
import time

import etcd
from etcd import wait_for
from patience import PATIENCE_S, stretched
from test_etcd import DONE, FOLDER, NAMES, ONE, REFUSED, UNKNOWN, is_outcome, known, path, tap, tool, well

LONG_MS = PATIENCE_S * 1000


class Workers:
    """Tools that have joined one cluster, by a letter; each takes its turns when asked. The first one leads. Leases of those
    that are `mortal` expire soon after they are killed, the others' last."""

    def __init__(self, stack, least, most, wait_ms=LONG_MS, return_ms=LONG_MS, cluster=None, mortal="", **more):
        self.stack, self.options, self.cluster = stack, (least, most, wait_ms, return_ms), cluster
        self.mortal, self.more = mortal, more
        self.name, self.tools = f"n{next(NAMES)}", {}

    def add(self, letter):
        lease = {"lease_s": math.ceil(stretched(3))} if letter in self.mortal else {}
        call = self.stack.enter_context(tool(self.cluster, self.name, **lease, **self.more))
        known(call, "join", "digest", "1.0", "avx2", letter, 0)
        if not self.tools:
            known(call, "campaign")
        well(call("gather", *self.options))
        self.tools[letter] = call

    def kill(self, letter):
        self.tools.pop(letter).kill()

    def turns(self):
        return {letter: call("turn") for letter, call in self.tools.items()}

    def rounds(self):
        """What each worker knows: its round's incarnation and workers, or None."""
        found = {}
        for letter, said in self.turns().items():
            assert said["outcome"] != REFUSED, said
            found[letter] = said.get("round")
        return found

    def round_of(self, letters, after=0):
        """The round of exactly these workers, which all of them know alike."""
        def look():
            found = self.rounds()
            mine = [found[letter] for letter in letters]
            if not all(mine) or min(one["incarnation"] for one in mine) <= after:
                return None
            same = [{key: value for key, value in one.items() if key != "self"} for one in mine]
            return mine[0] if all(one == same[0] for one in same) and sorted(mine[0]["workers"]) == sorted(letters) else None
        found = wait_for(f"a round of {letters}", look)
        for letter, one in self.rounds().items():
            assert (one is not None) == (letter in letters), (letter, one)
            assert one is None or found["workers"][one["self"]] == letter
        return found

    def over(self, letters, incarnation):
        for letter in letters:
            known(self.tools[letter], "over", incarnation)


@contextlib.contextmanager
def workers(letters, *options, **more):
    with contextlib.ExitStack() as stack:
        found = Workers(stack, *options, **more)
        for letter in letters:
            found.add(letter)
        yield found


def test_options():
    with tool() as call:
        for least, most in ((0, 1), (2, 1), (1, 65)):
            is_outcome(REFUSED, call("gather", least, most, 0, 0), f"found {least}:{most}", code="E0404")


def test_as_many_as_can_be():
    """Who comes before all are there waits; with the last one all begin at once, and who comes later waits."""
    with workers("ab", 1, 3) as all_of:
        for said in all_of.turns().values():
            assert said["outcome"] == DONE and "round" not in said, said
        leading = [said["waits"] for said in all_of.turns().values() if said["waits"].startswith("2 of 1 to 3 workers: ")]
        assert len(leading) == 1, leading
        all_of.add("c")
        first = all_of.round_of("abc")
        assert first["incarnation"] == 1 and first["lanes"] == 3 and first["head"] == 0
        all_of.add("d")
        assert all_of.round_of("abc") == first


def test_least_and_a_while():
    with workers("a", 2, 4, 300) as all_of:
        time.sleep(0.4)
        assert all_of.rounds() == {"a": None}
        all_of.add("b")
        begin = time.monotonic()
        all_of.rounds()
        all_of.round_of("ab")
        assert time.monotonic() - begin >= 0.25


def test_a_worker_dies():
    """The leader doubts it at once, others notice by the lease; the rest begins in its order, with the head that is there."""
    with workers("abc", 2, 3, LONG_MS, 0) as all_of:
        first = all_of.round_of("abc")
        leader = first["workers"][first["leader"]]
        well(all_of.tools[leader]("publish", 7))
        gone = next(letter for letter in "abc" if letter != leader)
        all_of.kill(gone)
        all_of.tools[leader]("doubt", first["workers"].index(gone))
        rest = "".join(letter for letter in first["workers"] if letter != gone)
        assert all_of.tools[leader]("turn")["round"]["incarnation"] == 2  # the lease of who is gone lasts
        second = all_of.round_of(rest, 1)
        assert "".join(second["workers"]) == rest and second["head"] == 7 and second["secret"] != first["secret"]


def test_a_worker_dies_unseen():
    """Nobody doubts it: the lease tells."""
    with workers("abc", 2, 3, LONG_MS, 0, mortal="b") as all_of:
        all_of.round_of("abc")
        all_of.kill("b")
        all_of.round_of("ac", 1)


def test_all_have_ended():
    """The job has ended when all workers of a round have said so. Who waits, or comes later, begins anew, unless it is finished."""
    for is_finished in (0, 1):
        with workers("abc", 2, 2, LONG_MS, 0) as all_of:
            first = wait_for("a round", lambda all_of=all_of: all_of.rounds()["a"])
            known(all_of.tools["a"], "ended", first["incarnation"], is_finished)
            assert not any(said["ended"] for said in all_of.turns().values())
            known(all_of.tools[first["workers"][1]], "ended", first["incarnation"], is_finished)
            both = first["workers"]
            wait_for("its end", lambda all_of=all_of, both=both: all(all_of.tools[one]("turn")["ended"] for one in both))
            assert all_of.tools["c"]("turn")["ended"] == bool(is_finished)
            assert all("round" not in all_of.tools[one]("turn") for one in both)
            for letter in "abc":
                well(all_of.tools[letter]("leave"))
            late = Workers(all_of.stack, 1, 1)
            late.name = all_of.name
            late.add("d")
            said = wait_for("a turn", late.turns)["d"]
            assert said["ended"] == bool(is_finished), said
            assert is_finished or late.round_of("d", first["incarnation"])


def test_an_ended_worker_dies():
    """Before all have ended: those that are left begin again, once nobody knows any more that it had."""
    with workers("ab", 1, 2, LONG_MS, 0, mortal="b") as all_of:
        first = all_of.round_of("ab")
        known(all_of.tools["b"], "ended", first["incarnation"], 1)
        all_of.kill("b")
        all_of.round_of("a", first["incarnation"])
        assert not all_of.turns()["a"]["ended"]


def test_the_leader_dies():
    with workers("abc", 2, 3, LONG_MS, 0, mortal="a") as all_of:
        first = all_of.round_of("abc")
        assert first["workers"][first["leader"]] == "a"
        all_of.kill("a")
        second = all_of.round_of("bc", first["incarnation"])
        assert second["workers"][second["leader"]] in "bc"


def test_it_comes_back():
    """As many as before: the next round begins at once, although there is time for others; too few: none begins."""
    with workers("ab", 2, 3, 100, mortal="b") as all_of:
        all_of.round_of("ab")
        all_of.kill("b")
        wait_for("the end of the round", lambda: all_of.rounds() == {"a": None})
        assert all_of.rounds() == {"a": None}
        all_of.add("c")
        assert all_of.round_of("ac", 1)["workers"] == ["a", "c"]


def test_a_cut_link():
    """A worker that is no leader loses another one, which all others see: it leaves the round, and all begin anew."""
    with workers("abc", 2, 3) as all_of:
        first = all_of.round_of("abc")
        names = first["workers"]
        one, other = [i for i in range(3) if i != first["leader"]]
        all_of.tools[names[one]]("doubt", other)
        assert "round" not in all_of.tools[names[one]]("turn")
        assert all_of.tools[names[other]]("turn")["round"]["incarnation"] == 1
        all_of.over([names[one]], 1)
        second = all_of.round_of("abc", 1)
        assert second["incarnation"] == 2 and second["workers"] == names


def test_a_head_in_between():
    """A head that a round does not begin with came before a worker saw the round: it takes no part, and the next one has that head."""
    with workers("ab", 2, 2) as all_of:
        call = all_of.tools["a"]
        assert call("turn")["round"]["head"] == 0
        well(call("publish", 5))
        said = all_of.tools["b"]("turn")
        assert "round" not in said and said["missed"] == 1, said
        all_of.over("b", said["missed"])
        assert all_of.round_of("ab", 1)["head"] == 5


def test_doubt_is_forgiven():
    """The leader doubts a worker that lives: the next round is without it, until it says that it has left the last one."""
    with workers("abc", 2, 3, LONG_MS, 100) as all_of:
        first = all_of.round_of("abc")
        other = next(i for i in range(3) if i != first["leader"])
        all_of.tools[first["workers"][first["leader"]]]("doubt", other)
        rest = "".join(letter for letter in first["workers"] if letter != first["workers"][other])
        second = all_of.round_of(rest, 1)
        all_of.over([first["workers"][other]], 1)
        time.sleep(0.3)
        assert all_of.round_of(rest) == second  # who comes back waits
        all_of.over(rest, 2)
        all_of.round_of("abc", 2)


def test_doubted_before_it_saw():
    """A worker is doubted in a round that it has not seen, and that is over when it looks: it says so, and takes part again."""
    with workers("abc", 2, 3, LONG_MS, 0) as all_of:
        leader = all_of.tools["a"]
        first = leader("turn")["round"]
        assert first["incarnation"] == 1 and first["workers"] == ["a", "b", "c"] and leader("turn")["missed"] == 0
        leader("doubt", 1)
        assert leader("turn")["round"]["workers"] == ["a", "c"]
        said = all_of.tools["b"]("turn")
        assert "round" not in said and said["missed"] == 2, said
        all_of.over("b", said["missed"])
        assert all_of.tools["b"]("turn")["missed"] == 0
        all_of.round_of("ac", 1)
        all_of.over("ac", 2)
        all_of.round_of("abc", 2)


def test_doubted_twice():
    """The leader doubts a worker that comes back, and doubts it anew: that counts as well, until it has left the later round."""
    with workers("abc", 2, 3, LONG_MS, 0) as all_of:
        leader, other = "a", "b"
        for incarnation in (1, 3):
            found = all_of.round_of("abc", incarnation - 1)
            assert found["incarnation"] == incarnation and found["workers"][found["leader"]] == leader, found
            all_of.tools[leader]("doubt", found["workers"].index(other))
            assert all_of.tools[leader]("turn")["round"]["incarnation"] == incarnation + 1
            all_of.round_of("ac", incarnation)
            all_of.over([other], incarnation)
            all_of.over("ac", incarnation + 1)


def test_no_quorum():
    """etcd is away: nothing is known, and rounds go on; it comes back, and they still do."""
    with etcd.Etcd(path("away"), is_fast=True) as cluster, workers("ab", 2, 2, cluster=cluster, request_ms=2000) as all_of:
        first = all_of.round_of("ab")
        cluster.members[0].pause()
        said = all_of.turns()
        cluster.members[0].go_on()
        for letter in "ab":
            assert said[letter]["outcome"] == UNKNOWN and said[letter]["round"]["incarnation"] == 1, said
        cluster.wait()
        after = all_of.round_of("ab")
        assert after["workers"] == first["workers"]


def test_the_most_take_part():
    """More have come than can take part: the leader does, and those who did before."""
    with workers("abcd", 2, 2, LONG_MS, 0) as all_of:
        def two():
            found = [one for one in all_of.rounds().values() if one]
            return found if len(found) == 2 and found[0]["workers"] == found[1]["workers"] else None
        first = wait_for("a round of two", two)[0]["workers"]
        assert len(first) == 2
        all_of.over(first, 1)
        def again():
            found = two()
            return found if found and found[0]["incarnation"] == 2 else None
        assert wait_for("the next round", again)[0]["workers"] == first


def main():
    if etcd.missing():
        print(f"ok - cluster_rendezvous # SKIP {etcd.missing()}")
        return 77
    chosen = {name: test for name, test in globals().items()
              if name.startswith("test_") and (len(sys.argv) < 3 or name in sys.argv[2:])}
    with FOLDER, etcd.Etcd(path("one"), is_fast=True) as one:
        ONE.append(one)
        return tap.run(chosen, threads=3)


if __name__ == "__main__":
    sys.exit(main())
