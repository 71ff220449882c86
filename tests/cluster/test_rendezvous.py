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
from test_etcd import DONE, FOLDER, NAMES, ONE, REFUSED, UNKNOWN, is_outcome, known, loaded_ms, path, tap, tool, well

LONG_MS = PATIENCE_S * 1000


class Workers:
    """Tools that have joined one cluster, by a letter; each takes its turns when asked. The first one leads. Leases of those
    that are `mortal` expire soon after they are killed, the others' last."""

    def __init__(self, stack, least, most, wait_ms=LONG_MS, return_ms=LONG_MS, apart_ms=0, *rest_ms, cluster=None, mortal="", standbys="",
                 **more):
        self.stack, self.options, self.cluster = stack, (least, most, wait_ms, return_ms, apart_ms, *rest_ms), cluster
        self.mortal, self.standbys, self.more = mortal, standbys, more
        self.name, self.tools, self.seen = f"n{next(NAMES)}", {}, {}  # seen: incarnations, by worker
        self.unfit, self.fits = "", {}  # fits: the incarnation whose leader's files a waiting worker has, as it has said; `unfit` never say so

    def add(self, letter):
        lease = {"lease_s": math.ceil(stretched(3))} if letter in self.mortal else {}
        call = self.stack.enter_context(tool(self.cluster, self.name, **lease, **self.more))
        known(call, "join", "digest", "1.0", "avx2", letter, 0)
        is_standby = letter in self.standbys
        if not self.tools and not is_standby:
            known(call, "campaign")
        well(call("gather", *(self.options if not is_standby else (*self.options, 0)[:6] + ("standby",))))
        if is_standby:
            known(call, "prepared")
        self.tools[letter] = call

    def kill(self, letter):
        self.tools.pop(letter).kill()

    def turns(self):
        found = {letter: call("turn") for letter, call in self.tools.items()}
        for letter, said in found.items():
            if said.get("other") and letter not in self.unfit and self.fits.get(letter) != said["other"]:
                self.fits[letter] = said["other"]
                known(self.tools[letter], "fits", said["other"])
        return found

    def rounds(self):
        """What each worker knows: its round's incarnation and workers, or None."""
        found = {}
        for letter, said in self.turns().items():
            assert said["outcome"] != REFUSED, said
            found[letter] = said.get("round")
            if found[letter]:
                self.seen[letter] = found[letter]["incarnation"]
        return found

    def round_of(self, letters, after=0):
        """The round of exactly these workers, which all of them know alike. Whose turn shows that its round is over
        ends its work at once."""
        def look():
            found = self.rounds()
            for letter in letters:
                if found[letter] is None and letter in self.seen:
                    self.over(letter, self.seen.pop(letter))
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

    def lease(self, letter):
        return well(self.tools[letter]("member"))["lease"]

    def change(self, letters, after):
        """All of the round see that it comes to a planned end, and say that they have come to it."""
        def look():
            found = self.turns()
            return all(found[letter]["changes"] and found[letter]["round"]["incarnation"] == after for letter in letters)
        wait_for("a planned end", look)
        for letter in letters:
            known(self.tools[letter], "ended", after, 0)

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
        all_of.over([leader], 1)
        assert all_of.tools[leader]("turn")["round"]["incarnation"] == 2  # the lease of who is gone lasts
        second = all_of.round_of(rest, 1)
        assert "".join(second["workers"]) == rest and second["head"] == 7 and second["secret"] != first["secret"]


def test_a_worker_dies_unseen():
    """Nobody doubts it: the lease tells."""
    with workers("abc", 2, 3, LONG_MS, 0, mortal="b") as all_of:
        all_of.round_of("abc")
        all_of.kill("b")
        all_of.round_of("ac", 1)


def test_all_of_a_round_die():
    """Who waited for a place has seen the round, and begins the next one; it does not wait as at the job's beginning."""
    with workers("abc", 1, 2, LONG_MS, 0, mortal="ab") as all_of:
        both = wait_for("a round", lambda: all_of.rounds()["a"])["workers"]
        assert sorted(both) == ["a", "b"], both
        for letter in both:
            all_of.kill(letter)
        all_of.round_of("c", 1)


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
        all_of.over("ab", said["missed"])
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
        assert "round" not in leader("turn")  # its own work has not ended
        all_of.over("a", 1)
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
            all_of.over([leader], incarnation)
            assert all_of.tools[leader]("turn")["round"]["incarnation"] == incarnation + 1
            all_of.round_of("ac", incarnation)
            all_of.over([other], incarnation)
            all_of.over("ac", incarnation + 1)


def missing(all_of, pairs, incarnation):
    """Each of a pair tells that the other one did not answer it in that round, which is over for all."""
    found = all_of.round_of("".join(all_of.tools), incarnation - 1)["workers"]
    for one, other in pairs:
        all_of.tools[one]("doubt", found.index(other), "unreached")
        all_of.tools[other]("doubt", found.index(one), "unreached")
    all_of.over(all_of.tools, incarnation)


def test_two_do_not_reach_each_other():
    """The next round is without one of them, at once; one that begins after a while has both again."""
    with workers("abcd", 2, 4, LONG_MS, 10 * LONG_MS, 1000) as all_of:
        missing(all_of, ["bd"], 1)
        all_of.round_of("abc", 1)
        time.sleep(1)
        all_of.turns()
        said = all_of.tools["d"]("turn")
        all_of.over("d", said["missed"])
        all_of.over("abc", 2)
        all_of.round_of("abcd", 2)


def test_they_stay_apart():
    """For that while, also in the rounds that follow."""
    with workers("abcd", 2, 4, LONG_MS, LONG_MS) as all_of:
        missing(all_of, ["bd"], 1)
        for incarnation in (2, 3):
            all_of.round_of("abc", incarnation - 1)
            said = all_of.tools["d"]("turn")
            all_of.over("d", said["missed"])
            assert all_of.tools["d"]("turn")["missed"] == 0
            all_of.over("abc", incarnation)


def test_most_do_not_reach_one():
    """The one that two do not reach is left out, though it came before them."""
    with workers("abcd", 2, 4, LONG_MS, LONG_MS) as all_of:
        missing(all_of, ["bc", "bd"], 1)
        all_of.round_of("acd", 1)


def numbers(before, rest):
    """Workers of a round in the order of the round before keep their numbers, where there are so many; the others fill the gaps."""
    kept = {i: name for i, name in enumerate(before) if name in rest and i < len(rest)}
    others = [name for name in rest if name not in kept.values()]
    return [kept[i] if i in kept else others.pop(0) for i in range(len(rest))]


def test_leader_is_not_reached():
    """It gives up leading, and joins anew; another one leads, and begins without it."""
    with workers("abcd", 2, 4, LONG_MS, LONG_MS) as all_of:
        missing(all_of, ["ab", "ac", "ad"], 1)
        is_outcome(REFUSED, all_of.tools["a"]("turn"), "most other workers do not reach it", code="E0709")
        known(all_of.tools["a"], "join", "digest", "1.0", "avx2", "a", 0)
        found = all_of.round_of("bcd", 1)
        assert found["workers"][found["leader"]] == "b" and found["workers"] == numbers("abcd", "bcd"), found


def test_too_few_reach_each_other():
    """Without them there would be too few: all try again."""
    with workers("ab", 2, 2, LONG_MS, LONG_MS) as all_of:
        missing(all_of, ["ab"], 1)
        all_of.round_of("ab", 1)


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


def test_more_are_asked_for():
    """Who comes waits until somebody asks; then all begin anew, those of the round before with their numbers, with the head that is there."""
    with workers("ab", 2, 4, 0) as all_of:
        first = all_of.round_of("ab")
        for letter in "cd":
            all_of.add(letter)
        assert all_of.round_of("ab") == first and not any(said["changes"] for said in all_of.turns().values())
        well(all_of.tools["d"]("ask", 3, 0, 0))
        all_of.change("ab", 1)
        well(all_of.tools[first["workers"][first["leader"]]]("publish", 7))
        second = wait_for("three", lambda: [one for one in all_of.rounds().values() if one and one["incarnation"] == 2])[0]
        assert len(second["workers"]) == 3 and second["workers"][:2] == first["workers"] and second["head"] == 7, second
        rest = second["workers"]
        all_of.over("ab", 1)
        assert all_of.round_of(rest)["workers"] == rest
        assert not any(said["changes"] for said in all_of.turns().values()), "no more than three"


def test_they_grow():
    """Who comes is taken in without being asked for, once no other one has come for a while."""
    with workers("ab", 2, 4, 0, LONG_MS, 0, 1) as all_of:
        all_of.round_of("ab")
        all_of.add("c")
        all_of.change("ab", 1)
        assert len(all_of.round_of("abc", 1)["workers"]) == 3
    with workers("ab", 2, 4, 0, LONG_MS, 0, LONG_MS) as all_of:
        first = all_of.round_of("ab")
        all_of.add("c")
        assert all_of.round_of("ab") == first and not any(said["changes"] for said in all_of.turns().values())


def test_the_unfit_wait():
    """No round ends for who has not said that it has what the leader has; where one leaves, it takes that one's place, if no other one does."""
    with workers("ab", 2, 4, 0, LONG_MS, 0, 1) as all_of:
        all_of.round_of("ab")
        all_of.unfit = "c"
        all_of.add("c")
        wait_for("its turn", lambda: all_of.turns()["c"]["other"] == 1)
        all_of.over("c", 1)
        assert all_of.turns()["c"]["other"] == 1
        well(all_of.tools["a"]("ask", 0, 0, 0))
        assert not any(said["changes"] for said in all_of.turns().values()), "the round is to end for c"
        all_of.add("d")
        all_of.change("ab", 1)
        assert len(all_of.round_of("abd", 1)["workers"]) == 3
        all_of.over("ab", 1)
        known(all_of.tools["d"], "leaves")
        all_of.change("abd", 2)
        well(all_of.tools.pop("d")("leave"))
        assert len(all_of.round_of("abc", 2)["workers"]) == 3


def test_who_is_not_reached_does_not_grow():
    """A round does not end for a worker that was left out of it, however long that waits; for another one it does, without that worker. Who asks
    for all gets all."""
    with workers("abcd", 2, 5, 0, LONG_MS, 500, 1) as all_of:
        missing(all_of, ["bd", "cd"], 1)
        all_of.round_of("abc", 1)
        def d_waits():
            said = all_of.turns()
            if said["d"]["missed"]:
                all_of.over("d", said["d"]["missed"])
            return any(one["changes"] for one in said.values())
        until = time.monotonic() + stretched(1)
        while time.monotonic() < until:
            assert not d_waits(), "the round is to end for d"
        all_of.add("e")
        all_of.change("abc", 2)
        all_of.round_of("abce", 2)
        all_of.over("abc", 2)
        assert not d_waits()
        well(all_of.tools["a"]("ask", 0, 0, 0))
        all_of.change("abce", 3)
        all_of.round_of("abcde", 3)


def test_a_death_beside_a_named_one():
    """One is to wait, another one dies before that: too few would be left, so the named one takes part."""
    with workers("abc", 2, 3, LONG_MS, loaded_ms(600), mortal="c") as all_of:
        first = all_of.round_of("abc")["workers"]
        assert first[0] == "a"
        well(all_of.tools["a"]("ask", 2, 0, all_of.lease("b")))
        all_of.kill("c")
        assert all_of.round_of("ab", 1)["workers"] == ["a", "b"]


def test_fewer_are_asked_for():
    """The named one waits, then the one with the highest number; and they go on waiting when all begin again."""
    with workers("abcd", 2, 4, LONG_MS, LONG_MS, 0, 1) as all_of:
        first = all_of.round_of("abcd")["workers"]
        assert first[0] == "a"
        well(all_of.tools["a"]("ask", 2, 0, all_of.lease(first[1])))
        all_of.change("abcd", 1)
        left = first[0] + first[2]
        second = all_of.round_of(left, 1)
        assert second["workers"] == list(left) and second["incarnation"] == 2
        all_of.over("abcd", 1)
        assert all_of.round_of(left) == second and not any(said["changes"] for said in all_of.turns().values())
        all_of.over(left, 2)
        assert all_of.round_of(left, 2)["workers"] == list(left)


def test_one_leaves():
    """It may go once all have come to the end; the others begin without it at once, also when it led."""
    for leads in (False, True):
        with workers("abc", 1, 3) as all_of:
            first = all_of.round_of("abc")
            gone = next(name for i, name in enumerate(first["workers"]) if (i == first["leader"]) == leads)
            rest = [name for name in first["workers"] if name != gone]
            well(all_of.tools["b"]("ask", 0, all_of.lease(gone), 0))
            wait_for("the request", lambda gone=gone, all_of=all_of: all_of.tools[gone]("turn")["must_leave"])
            assert not any(all_of.tools[name]("turn")["must_leave"] for name in rest)
            known(all_of.tools[gone], "leaves")
            all_of.change(rest, 1)
            assert not all_of.tools[gone]("turn")["may_leave"], "it has not come to its end"
            known(all_of.tools[gone], "ended", 1, 0)
            said = all_of.tools[gone]("turn")
            assert said["may_leave"] and not all_of.tools[rest[0]]("turn")["may_leave"], said
            well(all_of.tools[gone]("leave"))
            all_of.tools.pop(gone)
            assert all_of.round_of("".join(rest), 1)["workers"] == numbers(first["workers"], rest)


def test_a_death_while_they_change():
    """One dies before it has come to the end: the others wait for it, as after any death, and then begin without it."""
    with workers("abc", 1, 3, LONG_MS, loaded_ms(600), mortal="c") as all_of:
        first = all_of.round_of("abc")
        well(all_of.tools["a"]("ask", 2, 0, 0))
        all_of.change("ab", 1)
        all_of.kill("c")
        assert all(one["incarnation"] == 1 for one in all_of.rounds().values())
        assert "".join(all_of.round_of("ab", 1)["workers"]) == "".join(first["workers"]).replace("c", "")


def test_a_gap_is_filled():
    """Another one comes for one that has died: it takes that one's number, and the others keep theirs."""
    with workers("abc", 2, 3, mortal="b") as all_of:
        first = all_of.round_of("abc")["workers"]
        assert first[1] == "b", first
        all_of.kill("b")
        wait_for("the end of the round", lambda: not any(all_of.rounds().values()))
        all_of.add("d")
        assert all_of.round_of("acd", 1)["workers"] == [first[0], "d", first[2]]


def test_a_standby():
    """It is never one more, though the job may grow; when a worker dies, it has that one's place and number, and nobody waits for a return. It
    says which head it has prepared."""
    with workers("abc", 3, 5, 0, LONG_MS, 0, 1, standbys="st") as all_of:
        first = all_of.round_of("abc")
        for letter in "st":
            all_of.add(letter)
        well(all_of.tools[first["workers"][first["leader"]]]("publish", 7))
        def says_seven():
            all_of.rounds()
            known(all_of.tools["s"], "prepared")
            return {one["address"]: (one["standby"], one["prepared"]) for one in well(all_of.tools["a"]("read"))["members"]}["s"] == (True, 7)
        wait_for("a head that is prepared", says_seven)
        until = time.monotonic() + stretched(.2)
        while time.monotonic() < until:
            assert all_of.round_of("abc") == first and not any(said["changes"] for said in all_of.turns().values())
        all_of.kill("b")
        all_of.tools["a"]("doubt", first["workers"].index("b"))
        all_of.rounds()
        all_of.over("a", 1)
        rest = wait_for("the next round", lambda: all_of.rounds()["a"])["workers"]
        assert len(rest) == 3 and rest[first["workers"].index("b")] in "st" and {"a", "c"} < set(rest), (first, rest)


def test_a_standby_comes_before_others():
    """Where one dies, not where one leaves: another one that waits has nothing ready."""
    with workers("abc", 3, 3, standbys="s") as all_of:
        first = all_of.round_of("abc")
        for letter in "ds":
            all_of.add(letter)
        all_of.kill("b")
        all_of.tools["a"]("doubt", first["workers"].index("b"))
        all_of.rounds()
        all_of.over("a", 1)
        assert set(wait_for("the next round", lambda: all_of.rounds()["a"])["workers"]) == set("acs")


def test_a_standby_does_not_begin():
    """Alone it leads nobody; with too few others it takes part once they have waited."""
    with workers("st", 2, 3, loaded_ms(300), standbys="st") as all_of:
        for said in (all_of.turns(), all_of.turns()):
            assert not any(one.get("round") for one in said.values()) and "a standby does not" in said["s"]["waits"], said
        assert well(all_of.tools["s"]("read"))["leader"] == 0
        all_of.add("a")
        begin = time.monotonic()
        found = wait_for("a round", lambda: [one for one in all_of.rounds().values() if one])
        assert "a" in found[0]["workers"] and len(found[0]["workers"]) == 2 and time.monotonic() - begin >= .25, found


def test_a_standby_of_who_leaves():
    """It takes the place of one that leaves, too, unless another one waits for a place."""
    for others in ("", "d"):
        with workers("abc", 2, 3, standbys="s") as all_of:
            first = all_of.round_of("abc")
            for letter in "s" + others:
                all_of.add(letter)
            gone = next(name for i, name in enumerate(first["workers"]) if i != first["leader"])
            known(all_of.tools[gone], "leaves")
            all_of.change("abc", 1)
            well(all_of.tools[gone]("leave"))
            all_of.tools.pop(gone)
            rest = "abc".replace(gone, "") + (others or "s")
            found = all_of.round_of(rest, 1)["workers"]
            assert found[first["workers"].index(gone)] == (others or "s"), found


def test_asked_twice():
    """A request that does not follow the newest one is refused."""
    with workers("a", 1, 2) as all_of:
        well(all_of.tools["a"]("ask", 1, 0, 0, 0))
        is_outcome(REFUSED, all_of.tools["a"]("ask", 2, 0, 0, 0), "at the same time", "leat cluster status", code="E0716")


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
