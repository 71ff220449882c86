"""Whether what a page shows is what the API told it: each value by its data-key, what the page computes of such values, and the
text that people read.

The tab must listen (browser.py): it then keeps the newest answers that its page got.
"""

import contextlib
import itertools
import json
import math
import re
import urllib.parse

KEPT = 3  # figures that driver.mjs keeps of the stream
OTHERS = re.compile(r"(checkpoints|dead-letters|columns|log|state|model)[.\[]")
HISTORY = re.compile(r"history\[(.*)\]\.(\w+)")
WHAT_BECAME = ("passed", "filtered", "late", "duplicate", "dead", "absorbed", "held")
MEASURES = re.compile(r"(_ms|_seconds|_share|_p\d+)$|^(join|staleness|latency)")  # of `serves`; others are counts of outcomes


def one_of(items, name):
    """The element of a list that `[name]` of a data-key means."""
    for member in ("part", "id", "n", "name"):
        for one in items:
            if member in one and str(one[member]) == name:
                return one
    return items[int(name)]


def value_at(answer, rest):
    """What `nodes[a/b].counts.in` is in an answer; KeyError, IndexError, ValueError: nothing."""
    at = answer
    while rest:
        if rest.startswith("["):
            name, _, rest = rest[1:].partition("]")
            at = one_of(at, name)
        else:
            end = min((i for i in (rest.find("."), rest.find("[")) if i >= 0), default=len(rest))
            at, rest = at[rest[:end]], rest[end:]
        rest = rest.removeprefix(".")
    return at


LISTS = {"checkpoints": "checkpoints", "dead-letters": "letters", "columns": "nodes", "log": "lines"}


def told(key, answers):
    """What the newest answers that the page had say of a data-key that is not of the figures; KeyError: they do not say."""
    root = re.match(r"[a-z-]+", key)[0]
    rest = key[len(root):].removeprefix(".")
    if root in ("state", "model"):
        answer = next(value for route, value in answers.items() if route.startswith(root + "/"))
    else:
        answer = answers[root]
    if rest.startswith("["):
        answer = answer[LISTS[root]]
    if root == "columns" and "]." in rest:  # columns[NODE].COLUMN.MEMBER, columns[NODE].rows
        node, _, member = rest.partition("].")
        node, (name, _, member) = one_of(answer, node[1:]), member.rpartition(".")
        return one_of(node["columns"], name)[member] if name else node[member]
    return value_at(answer, rest)


def is_shown(shown, value):
    """Whether data-value says what JSON has."""
    if value is None or isinstance(value, bool):
        return shown == {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        with contextlib.suppress(ValueError):
            return float(shown) == float(value)
        return False
    if isinstance(value, (dict, list)):
        return json.loads(shown) == value
    return shown == value


def computed(figures, before):
    """What the page makes of these figures, by data-key. before: those that it got just before them; None: none."""
    def rate(now, was):
        return max(0, now - was) / (figures["seconds"] - before["seconds"])

    goes_on = before is not None and figures["state"] == "running"
    lanes, nodes = figures["lane_time"], figures["nodes"]
    found = {"derived.rate": rate(figures["records_life"], before["records_life"]) if goes_on else None,
             "derived.lanes.busy": lanes["decode"] + lanes["process"],
             "derived.lanes.blocked": math.fsum(share for name, share in lanes.items() if name.startswith("behind")),
             "derived.dead": sum(node["counts"]["dead"] for node in nodes),
             "derived.late": sum(node["counts"]["late"] for node in nodes)}
    for node in nodes:
        part, counts = node["part"], node["counts"]
        was = one_of(before["nodes"], part)["counts"] if goes_on else None
        found[f"derived.rate[{part}]"] = rate(counts["in"], was["in"]) if goes_on else None
        bad = rate(counts["dead"] + counts["late"], was["dead"] + was["late"]) if goes_on else 0
        found.update({f"derived.bad[{part}]": bad} if bad > 0 else {})
        found.update({f"derived.share[{part}].{name}": counts[name] / counts["in"] for name in WHAT_BECAME if counts[name] > 0})
    for served in figures["serves"]:
        outcomes = [name for name in served if name not in ("name", "requests") and not MEASURES.search(name)]
        found.update({f"derived.share[{served['name']}].{name}": served[name] / max(served["requests"], 1) for name in outcomes})
    return found


def newest_checkpoint(answer, name):
    """What the charts of the checkpoints end with: the youngest one."""
    return max(answer["checkpoints"], key=lambda one: one["time"])[name]


UNITS = {"": 1, "%": 0.01, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
TIMES = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
PIECE = re.compile(r"(-?)([\d,]+)(\.\d+)?(?:(e[+-]\d+)|\u202f([A-Za-zµ%]+))?")


def range_of(text):
    """The lowest and the highest number that a text can stand for by its digits, and whether it is a time: `12.3 k` stands for
    12,250 to 12,350, `3 min 12 s` for 192 to 193 seconds. ValueError: it is no number."""
    if text == "<\u202f0.1\u202f%":
        return 0, 0.001, False
    pieces = [PIECE.fullmatch(piece) for piece in text.split(" ")]
    if None in pieces or not all((one[5] or "") in {**UNITS, **TIMES} for one in pieces):
        raise ValueError(text)
    low, is_time = 0, all((one[5] or "") in TIMES for one in pieces)
    for sign, whole, part, power, unit in (one.groups(default="") for one in pieces):
        step = float("1" + power) if power else 1
        step *= {**UNITS, **TIMES}[unit] * 10 ** -max(len(part) - 1, 0)
        low += float(f"{sign}{whole.replace(',', '')}{part}{power}") * {**UNITS, **TIMES}[unit]
    return (low, low + step, is_time) if len(pieces) > 1 else (low - step / 2, low + step / 2, is_time)


def reads(key, value, text):
    """Whether people read the number that data-value is, by the digits of the text; moments and values that are no numbers are
    not judged."""
    if value == "null":
        return text == "–" or key == "figures.bottleneck"
    if not re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?", value) or re.search(r"\d\d:\d\d", text):
        return True
    try:
        number, (low, high, is_time) = float(value), range_of(text)
    except ValueError:
        return False
    if is_time and key.endswith("_ms"):
        number /= 1000
    slack = 1e-9 * max(abs(number), 1)
    return low - slack <= number <= high + slack


def differs(shown, said):
    try:
        return not is_shown(shown, said())
    except (LookupError, StopIteration, TypeError, ValueError):
        return True


def is_near(shown, value):
    """As is_shown, where sums may have been made in another order."""
    if shown == "null" or not isinstance(value, (int, float)):
        return is_shown(shown, value)
    return math.isclose(float(shown), value, rel_tol=1e-9, abs_tol=1e-12)


def wrong_of_stream(stream, shown):
    """The keys whose values are not those of one and the same second, of that which has the fewest. A tab that has been told
    less than driver.mjs keeps knows no figures before the first ones."""
    def wrong(before, figures):
        sums = computed(figures, before)
        bad = [key for key, value, _ in shown if key.startswith("figures.")
               and differs(value, lambda key=key: value_at(figures, key.removeprefix("figures.")))]
        bad += [key for key, value, _ in shown if key.startswith("derived.") and not (key in sums and is_near(value, sums[key]))]
        there = {key for key, _, _ in shown}
        flags = [key for key in sums if key.startswith("derived.bad") and key.replace("bad", "rate", 1) in there]
        return bad + [key for key in flags if key not in there]

    pairs = [(before, figures) for before, figures in itertools.pairwise(([None] if len(stream) < KEPT else []) + stream)
             if before is None or figures["seconds"] > before["seconds"]]  # a machine under load sends some twice
    return min((wrong(*pair) for pair in pairs), key=len, default=["no figures"])


def newest_of_history(key, histories, span):
    """The value in the newest row."""
    values = rows_of_history(key, histories, span)
    return values[-1] if values else None


def rows_of_history(key, histories, span):
    """The newest two values."""
    part, name = HISTORY.fullmatch(key).groups()
    answer = histories[f"{span} {part}"]
    return answer["values"][[figure["name"] for figure in answer["figures"]].index(name)]


def stands_still(shown, histories, span):
    """The nodes of whose last hour nothing that is shown was another value a row before: the row before would be as right."""
    if span != "1h":  # a second row comes too late
        return set()
    keys = [key for key, _, _ in shown if HISTORY.fullmatch(key)]
    moves = [key for key in keys if len(set(rows_of_history(key, histories, span))) > 1]
    return {HISTORY.fullmatch(key)[1] for key in keys} - {HISTORY.fullmatch(key)[1] for key in moves}


def judge(tab, state):
    """The keys of what is shown wrong, and all that are shown."""
    shown, answers = tab.shown(is_seen=True), tab.answers()
    span = dict(urllib.parse.parse_qsl(state.partition("?")[2])).get("span", "1h")
    bad = wrong_of_stream(answers["figures"], shown)
    for key, value, text in shown:
        if key.startswith("history["):
            bad += [key] if differs(value, lambda key=key: newest_of_history(key, answers["histories"], span)) else []
        elif newest := re.fullmatch(r"checkpoints\.newest\.(\w+)", key):
            bad += [key] if differs(value, lambda name=newest[1]: newest_checkpoint(answers["checkpoints"], name)) else []
        elif OTHERS.match(key):
            bad += [key] if differs(value, lambda key=key: told(key, answers)) else []
        if not key.startswith(("state", "model", "log")) and not reads(key, value, text):
            bad.append(f"{key} is {value} and reads {text}")
    if not bad:
        bad = [f"the history of {part} stands still" for part in stands_still(shown, answers["histories"], span)]
    return bad, [key for key, _, _ in tab.shown()]


def check_shown(tab, state, least):
    """All that the view of this URL shows is right: what it has of the figures, and what it computes of them, is of one and the
    same second; all else is in the newest answers. least: so many values by the first word of their key."""
    def is_right():
        bad, there = judge(tab, state)
        return not bad and all(sum(key.startswith(word) for key in there) >= count for word, count in least.items())
    try:
        tab.wait(f"{state}: values of the API", is_right)
    except AssertionError as error:
        bad, there = judge(tab, state)
        raise AssertionError(state, bad, {word: sum(key.startswith(word) for key in there) for word in least}, least) from error
