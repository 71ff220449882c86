"""window: of time (tumbling, sliding, cumulating, forever), sessions, and of rows; each way to emit.

A window of time takes in rows until the watermark has reached its end + lateness. Its row comes then, or with `emit`
earlier and again: see model_of_time. A session goes on while rows are no further apart than its gap, and closes when the
watermark is beyond its last row + gap + lateness; with changes, one that was given and moves its begin, or joins another
one, is deleted: see model_changing_sessions.
"""

import aggregates
import shapes
from history import TIME_MAX, TIME_MIN, clamp

HAS_LATE, ANY_ORDER = True, True
KEYS = [["k"], ["g"], ["b"], ["k", "g"], ["f"], ["s", "b"]]
LATENESS = [None, None, "0s", "1ms", "1s", "5s", "1m"]
EXPIRES = ["forever", "1ms", "1s", "5s", "1m"]
KINDS = ["tumbling", "tumbling", "sliding", "cumulating", "session", "count", "forever"]
EMITS = [None, None, "on_close", "final", "on_end", "every(1s)", "every(10s)", "on_change"]
BUGS = [
    ("a_gap_does_not_join", "operators/window/window_sessions.c", "->last_time, gap) >= time)", "->last_time, gap) > time)"),
    ("late_a_moment_later", "operators/window/window.c", "if (pane->closed_at <= context->watermark)", "if (pane->closed_at < context->watermark)"),
    ("not_again_at_a_new_end", "operators/window/window_sessions.c", "joined == 0 || facts->armed > next", "joined == 0"),
    ("deletes_nothing", "operators/window/window_shown.c", "            take_back(context, window, out, given, &row);\n",
     "            if (given->bytes == 0)\n                take_back(context, window, out, given, &row);\n"),
    ("updates_are_inserts", "operators/window/window_out.c", "a->first_tick = MIN(", "a->first_tick = MAX("),
    ("a_list_is_not_carried_on", "operators/window/window_close.c", "        if (pass->carries)\n            carry(window, pass, slot, &items[i]);\n", ""),
    ("groups_never_expire", "operators/window/window.c", "kept_until(window, update->time);", "TIME_MAX;"),
    ("expires_a_moment_early", "operators/window/window.c", "time_add(time, window->expire_after_us)", "time_add(time, window->expire_after_us - 1)"),
    ("one_row_too_many", "operators/window/window.c", "update->first_alive = open *", "update->first_alive = (open - 1) *"),
    ("the_first_of_two_hours", "engine/core/zone.c", "return MAX(time, zone->spans[i].from_us);", "return time;"),
    ("no_lateness", "operators/window/window.h", "time_add(windows_end(&window->shape, index), window->lateness_us)",
     "windows_end(&window->shape, index)"),
    ("closes_a_moment_later", "operators/window/window_close.c", "window_closed_at(window, index)) > watermark)",
     "window_closed_at(window, index)) >= watermark)"),
    ("a_sliding_window_too_few", "operators/window/windows.c", "floor_divide(time_add(pane, -size), slide) + 1",
     "floor_divide(time_add(pane, -size), slide) + 2"),
    ("before_1970", "operators/window/windows.c", "return a / b - (a % b < 0);", "return a / b;"),
    ("no_offset", "operators/window/windows.c", "(__int128)index * width + windows->offset_us + more;", "(__int128)index * width + more;"),
    ("days_of_24_hours", "operators/window/windows.c", "return MIN(MAX(steps, 1), windows->steps);", "return MIN(MAX(steps, 1), 4);"),
    ("a_late_row_opens_a_session", "operators/window/window_sessions.c", "if (joined == 0 && closed_at < context->watermark)",
     "if (joined == 0 && closed_at + 1 < context->watermark)"),
    ("sessions_do_not_merge", "operators/window/window_sessions.c", "*count = end - first;", "*count = MIN(end - first, 1);"),
    ("gives_what_has_not_changed", "operators/window/window_close.c", "facts->last_tick <= pass->since_tick)",
     "facts->last_tick < pass->since_tick)"),
    ("each_is_an_insert", "operators/window/window_close.c", "facts->first_tick <= pass->since_tick ? CHANGE_UPDATE",
     "facts->first_tick < pass->since_tick ? CHANGE_UPDATE"),
    ("fires_one_span_late", "operators/window/window_close.c", "before == TIME_MIN || pane_of(before", "pane_of(before"),
    ("the_first_rows_of_a_count", "operators/window/window.c", "(number - shape->size_rows) / shape->slide_rows + 1;",
     "(number - shape->size_rows) / shape->slide_rows;"),
    ("no_max_delay", "engine/run/sequencer/watermark.c", "time_add(time, -common->max_delay_us)", "time"),
    ("watermark_at_each_end", "engine/run/sequencer/form.c", "(p->is_live || partition_is_whole(p, piece))", "rows > 0"),
    ("sum_counts_nulls", "operators/aggregate/aggregate.h", "    if (!column_is_valid(column, row))\n        return false;\n", ""),
    ("top_takes_the_later_of_equals", "operators/aggregate/top.c", "return x->at < y->at ? -1 : x->at > y->at;",
     "return x->at > y->at ? -1 : x->at < y->at;"),
    ("variance_of_one", "operators/aggregate/numbers.c", "if (p->count < 2)", "if (p->count < 1)"),
    ("sums_of_32_bits", "operators/aggregate/numbers.c", "    p->high += value >> 32;\n    p->count++;", "    p->count++;"),
    ("argmax_takes_the_later_of_equals", "operators/aggregate/ranked.c", "&& time <= later_time;", "&& time < later_time;"),
    ("counts_what_is_there", "operators/aggregate/distinct_exact.c", "wanted.high & ~found.high", "wanted.high"),
]


def random_options(rng, any_order=False):
    kind = rng.choice([k for k in KINDS if not (any_order and k == "count")])
    options = {"by": rng.choice(KEYS), "lateness": rng.choice(LATENESS), "emit": rng.choice(EMITS),
               "body": aggregates.random_body(rng, any_order=any_order)}
    if any_order and options["emit"] not in (None, "on_close", "final"):
        options["emit"] = None
    if kind == "session":
        options["shape"] = {"kind": kind, "size": rng.choice(["1ms", "300ms", "1s", "3s", "10s"])}
    elif kind == "count":
        size = rng.choice([1, 2, 3, 4, 6])
        options["shape"] = {"kind": kind, "size": str(size), "slide": rng.choice([None, *map(str, range(1, size + 1))])}
        options["emit"], options["expire_after"] = None, rng.choice(EXPIRES)
    elif kind == "forever":
        options["shape"] = {"kind": kind}
        options["emit"] = rng.choice([None, "final", "every(1s)", "on_change"][:2 if any_order else 4])
    else:
        options["shape"] = shapes.random_shape(rng, [kind])
    if kind in ("count", "forever") or options["emit"] == "final":
        options["lateness"] = None
    return options


def step(options):
    over = options["shape"]["kind"] if options["shape"]["kind"] == "forever" else shapes.text(options["shape"])
    more = "".join(f" {word} {options[word]}" for word in ("lateness", "emit") if options[word])
    if options["shape"]["kind"] == "count":
        more += f" expire_after {options['expire_after'] or 'forever'}"
    return f"window by {', '.join(options['by'])} over {over}{more} {aggregates.text(options['body'])}"


def given(options, key, rows, bounds=None, change=None):
    """A row of the output."""
    values = dict(zip(options["by"], key))
    if bounds:
        values.update(window_start=clamp(bounds[0]), window_end=clamp(bounds[1]))
    values.update(zip([name for name, _, _ in options["body"]], aggregates.compute(options["body"], rows)))
    return {**values, "_op": change} if change else values


def arguments_of(options, row, out):
    try:
        return aggregates.arguments(options["body"], row.values)
    except aggregates.Dead as dead:
        out.dead(row, dead)
        return None


def model(options, micro_batches, out):
    kind = options["shape"]["kind"]
    changes = options["emit"] not in (None, "on_close", "final")
    sessions = model_changing_sessions if changes else model_sessions
    {"session": sessions, "count": model_count}.get(kind, model_of_time)(options, micro_batches, out)


def model_of_time(options, micro_batches, out):
    """on_close: a row for each group when the watermark has reached end + lateness. final: when the input has ended.
    on_change: after a micro_batch, a row for each group that it changed. on_end: a row at the end, then as on_change. every:
    that, and before it what has changed, each time the watermark has come to another span of so long."""
    emit = options["emit"] or ("final" if options["shape"]["kind"] == "forever" else "on_close")
    lateness, every = shapes.duration(options["lateness"]), shapes.duration(emit[6:-1]) if emit.startswith("every") else None
    is_forever, at_end = options["shape"]["kind"] == "forever", emit == "on_end" or every
    groups, changed = {}, {}  # (window, key) -> rows; -> whether its row was given before, since it is not given
    out.order = [*options["by"], *([] if is_forever else ["window_start", "window_end"])]
    out.hold = lateness

    def closes(window):
        return TIME_MAX if emit == "final" else clamp(window[1] + lateness)

    def give(place):
        window, key = place
        rows, change = groups[place], None
        if at_end or emit == "on_change":
            change = "update" if changed.get(place) else "insert"
            changed[place] = True
        time = max(time for time, _ in rows) if is_forever else clamp(window[1]) - 1
        out.emit(given(options, key, rows, None if is_forever else window, change), time)

    stale = set()  # places whose rows differ from what was given last
    for micro_batch in micro_batches:
        touched = []
        for row in micro_batch.rows:
            key, arguments = out.key(row, options["by"]), arguments_of(options, row, out)
            windows = [(TIME_MIN, TIME_MAX)] if is_forever else shapes.windows_of(options["shape"], row.time)
            if arguments is None:
                continue
            open_ = [w for w in windows if closes(w) > micro_batch.before]
            if not open_:
                out.late(row)
                continue
            out.count("absorbed")
            for window in open_:
                groups.setdefault((window, key), []).append((row.time, arguments))
                stale.add((window, key))
                if (window, key) not in touched:
                    touched.append((window, key))
        for place in sorted(touched, key=lambda p: p[0][::-1]):
            if emit == "on_change" or (at_end and clamp(place[0][1]) <= micro_batch.before):
                give(place)
                stale.discard(place)
        for place in sorted(groups, key=lambda p: p[0][::-1]):
            if emit in ("on_close", "final") and closes(place[0]) <= micro_batch.after:
                give(place)
            elif at_end and micro_batch.before < clamp(place[0][1]) <= micro_batch.after and place in stale:
                give(place)
                stale.discard(place)
        fires = every and TIME_MIN < micro_batch.after < TIME_MAX and (micro_batch.before == TIME_MIN or micro_batch.before // every != micro_batch.after // every)
        for place in sorted(groups, key=lambda p: p[0][::-1]) if fires else []:
            if clamp(place[0][1]) > micro_batch.after and place in stale:
                give(place)
                stale.discard(place)
        for place in [p for p in groups if closes(p[0]) <= micro_batch.after]:
            groups.pop(place), stale.discard(place), changed.pop(place, None)
        out.end(micro_batch)


def model_sessions(options, micro_batches, out):
    gap, lateness = shapes.duration(options["shape"]["size"]), shapes.duration(options["lateness"])
    sessions = []  # (key, first time, last time, rows)
    out.order, out.hold = options["by"], lateness + 1

    def closed(last, watermark):
        return watermark == TIME_MAX if options["emit"] == "final" else min(last + gap + lateness, TIME_MAX - 1) < watermark

    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key, arguments = out.key(row, options["by"]), arguments_of(options, row, out)
            if arguments is None:
                continue
            joined = [s for s in sessions if s[0] == key and s[1] - gap <= row.time <= s[2] + gap]
            if not joined and closed(row.time, micro_batch.before):
                out.late(row)
                continue
            out.count("absorbed")
            rows = [pair for s in joined for pair in s[3]] + [(row.time, arguments)]
            times = [time for time, _ in rows]
            sessions = [s for s in sessions if s not in joined] + [(key, min(times), max(times), rows)]
        for session in sorted((s for s in sessions if closed(s[2], micro_batch.after)), key=lambda s: s[2]):
            sessions.remove(session)
            key, first, last, rows = session
            out.emit(given(options, key, rows, (first, clamp(last + gap))), clamp(last + gap) - 1)
        out.end(micro_batch)


def model_changing_sessions(options, micro_batches, out):
    """A session is [key, first, last, rows, whether it changed since it was given]; what was given is known by key and
    first time. emit says which ones are given: all with on_change; else those that have ended, and with every(D) all
    now and then."""
    gap, lateness, emit = shapes.duration(options["shape"]["size"]), shapes.duration(options["lateness"]), options["emit"]
    every = emit.startswith("every") and shapes.duration(emit[6:-1])
    sessions, known = [], {}  # (key, first) -> (values, time)
    out.order, out.hold = options["by"], lateness + 1

    def end(session):
        return clamp(session[2] + gap)

    def closed(session, watermark):
        return min(clamp(end(session) + lateness), TIME_MAX - 1) < watermark

    def compare(key, ended_before):
        mine = {s[1]: s for s in sessions if s[0] == key}
        for first in sorted({*mine, *(f for k, f in known if k == key)}):
            if first not in mine:
                values, time = known.pop((key, first))
                out.emit({**values, "_op": "delete"}, time)
            elif mine[first][4] and end(mine[first]) < ended_before:
                session = mine[first]
                session[4] = False
                change = "update" if (key, first) in known else "insert"
                known[key, first] = given(options, key, session[3], (first, end(session)), change), end(session) - 1
                out.emit(*known[key, first])

    for micro_batch in micro_batches:
        touched = []
        for row in micro_batch.rows:
            key, arguments = out.key(row, options["by"]), arguments_of(options, row, out)
            if arguments is None:
                continue
            joined = sorted((s for s in sessions if s[0] == key and s[1] - gap <= row.time <= s[2] + gap), key=lambda s: s[1])
            if not joined and closed([key, row.time, row.time], micro_batch.before):
                out.late(row)
                continue
            out.count("absorbed")
            touched.append(key)
            rows = [pair for s in joined for pair in s[3]] + [(row.time, arguments)]
            times = [time for time, _ in rows]
            sessions = [s for s in sessions if s not in joined] + [[key, min(times), max(times), rows, True]]
        for key in {s[0]: None for s in sessions}:
            if key in touched:
                compare(key, TIME_MAX if emit == "on_change" else micro_batch.before)
            if emit != "on_change":
                compare(key, micro_batch.after)
        for session in [s for s in sessions if closed(s, micro_batch.after)]:
            sessions.remove(session)
            known.pop((session[0], session[1]), None)
        if every and TIME_MIN < micro_batch.after < TIME_MAX and (micro_batch.before == TIME_MIN or micro_batch.before // every != micro_batch.after // every):
            for key in {s[0]: None for s in sessions}:
                compare(key, TIME_MAX)
        out.end(micro_batch)


def model_count(options, micro_batches, out):
    size = int(options["shape"]["size"])
    slide, groups, until = int(options["shape"]["slide"] or size), {}, {}
    after = options["expire_after"] or "forever"
    for micro_batch in micro_batches:
        for row in micro_batch.rows:
            key, arguments = out.key(row, options["by"]), arguments_of(options, row, out)
            if arguments is None:
                continue
            stays = TIME_MAX if after == "forever" else clamp(row.time + shapes.duration(after))
            if stays < micro_batch.before:
                out.late(row)
                continue
            out.count("absorbed")
            if until.get(key, TIME_MAX) < micro_batch.before:
                groups.pop(key), until.pop(key)  # no row came for so long: forgotten
            until[key] = max(until.get(key, stays), stays)
            rows = groups.setdefault(key, [])
            rows.append((row.time, arguments))
            if len(rows) >= size and (len(rows) - size) % slide == 0:
                last = rows[-size:]
                times = [time for time, _ in last]
                out.emit(given(options, key, last, (min(times), max(times) + 1)), max(times))
        out.end(micro_batch)
