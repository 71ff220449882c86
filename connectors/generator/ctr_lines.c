#include "connectors/generator/ctr_lines.h"

#include "connectors/generator/ctr_math.h"
#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { FLUSH_BYTES = 1 << 20 };

bool ctr_lines_open(struct ctr_lines *lines, const char *directory, const char *name, bool is_forced,
                    struct diag_list *diags)
{
    lines->diags = diags;
    lines->greatest_ms = INT64_MIN / 2;
    lines->late.end = &lines->late.first;
    for (size_t i = 0; i < ARRAY_COUNT(lines->again); i++)
        lines->again[i].end = &lines->again[i].first;
    lines->path = mem_printf("%s/%s", directory, name);
    if (!is_forced && access(lines->path, F_OK) == 0) {
        struct diag *diag =
            diag_error(diags, DIAG_OUTPUT_EXISTS, (struct span){0}, "%s is already there", lines->path);
        diag_hint(diags, diag, "choose another --out, or replace it with --force");
        return false;
    }
    int error = replacement_begin(&lines->file, lines->path);
    if (error != 0)
        diag_errno(diags,
                   diag_error(diags, DIAG_OUTPUT_FAILED, (struct span){0}, "cannot write %s", lines->path),
                   error);
    return error == 0;
}

static void fail(struct ctr_lines *lines, int error)
{
    lines->has_failed = true;
    enum diag_code code = error == ENOSPC || error == EDQUOT ? DIAG_DISK_FULL : DIAG_OUTPUT_FAILED;
    struct diag *diag = diag_error(lines->diags, code, (struct span){0}, "cannot write %s", lines->path);
    diag_errno(lines->diags, diag, error);
    if (code == DIAG_DISK_FULL)
        diag_hint(
            lines->diags, diag,
            "an event takes about 250 bytes: choose fewer --events, or an --out on a disk with more room");
}

static void flush(struct ctr_lines *lines)
{
    int error =
        lines->has_failed ? 0 : os_write_all(lines->file.fd, lines->out.data, lines->out.length, NULL);
    if (error != 0)
        fail(lines, error);
    buffer_clear(&lines->out);
}

static void hold(struct held_lines *held, const char *text, size_t length, int64_t ts_ms, uint64_t due)
{
    struct held_line *line = mem_alloc(sizeof(*line) + length);
    *line = (struct held_line){.ts_ms = ts_ms, .due = due, .length = length};
    memcpy(line->text, text, length);
    *held->end = line;
    held->end = &line->next;
    held->count++;
}

/* Writes the first line of the list, and removes it from the list. */
static void let_go(struct ctr_lines *lines, struct held_lines *held)
{
    struct held_line *line = held->first;
    if ((held->first = line->next) == NULL)
        held->end = &held->first;
    held->count--;
    buffer_append(&lines->out, line->text, line->length);
    lines->counts.lines++;
    free(line);
}

/* Before row number `row` is written: writes the duplicates that are due at this row, and the late lines that
 * the newest row is at least late_ms of event time ahead of. row UINT64_MAX, at the end of the file: writes
 * all held lines; those less than late_ms behind are not counted as late. */
static void let_go_due(struct ctr_lines *lines, uint64_t row)
{
    for (size_t i = 0; i < ARRAY_COUNT(lines->again); i++) {
        while (lines->again[i].first != NULL && lines->again[i].first->due <= row)
            let_go(lines, &lines->again[i]);
    }
    int64_t due_ms = row == UINT64_MAX ? INT64_MAX : lines->greatest_ms - lines->plants->late_ms;
    while (lines->late.first != NULL && lines->late.first->ts_ms <= due_ms) {
        lines->counts.late += lines->late.first->ts_ms <= lines->greatest_ms - lines->plants->late_ms;
        let_go(lines, &lines->late);
    }
}

/* Writes a malformed line, which every decoder must reject: made from the next row's line in one of
 * BROKEN_WAYS ways. broken_at: offset in `line` of the number that is replaced. */
static void write_broken(struct ctr_lines *lines, const char *line, size_t length, size_t broken_at,
                         uint32_t way)
{
    static const char *const values[] = {
        "true", "99999999999999999999", "\"\xff\xfe\"", "{\"a\":1}", "12:30",
    };
    struct byte_buffer *out = &lines->out;
    if (way < ARRAY_COUNT(values)) {
        buffer_append(out, line, broken_at);
        buffer_printf(out, "%s}\n", values[way]);
    } else if (way == ARRAY_COUNT(values)) {
        buffer_append(out, line, length / 2); /* the first half of the line */
        buffer_append(out, "\n", 1);
    } else {
        buffer_printf(out, "connection reset by peer\n");
    }
    lines->counts.malformed++;
    lines->counts.lines++;
}
enum { BROKEN_WAYS = 7 };

char *ctr_lines_room(struct ctr_lines *lines)
{
    return buffer_reserve(&lines->out, CTR_LINE_BYTES_MAX);
}

/* The line lies in the free room of `out`, from out.length on. Draws by the row's random numbers whether to
 * write a malformed line before it, whether to hold the line itself back as late, and whether to repeat it
 * later. */
static void add_planted(struct ctr_lines *lines, size_t length, int64_t ts_ms, size_t broken_at)
{
    const struct ctr_plants *plants = lines->plants;
    char line[CTR_LINE_BYTES_MAX];
    memcpy(line, lines->out.data + lines->out.length, length);
    uint64_t row = lines->counts.rows;
    let_go_due(lines, row);
    struct ctr_random random = ctr_random_at(lines->seed, lines->purpose, row);
    if (ctr_uniform(&random) < plants->malformed)
        write_broken(lines, line, length, broken_at, ctr_below(&random, BROKEN_WAYS));
    if (ctr_uniform(&random) < plants->late && ts_ms < plants->late_before_ms &&
        lines->late.count < CTR_HELD_MAX) {
        hold(&lines->late, line, length, ts_ms, 0);
        return;
    }
    buffer_append(&lines->out, line, length);
    lines->counts.lines++;
    lines->greatest_ms = MAX(lines->greatest_ms, ts_ms);
    if (ctr_uniform(&random) < plants->duplicates) {
        uint32_t distance = ctr_below(&random, CTR_DUPLICATE_DISTANCE_MAX);
        hold(&lines->again[distance], line, length, ts_ms, row + distance + 1);
        lines->counts.duplicates++;
    }
}

void ctr_lines_add(struct ctr_lines *lines, size_t length, int64_t ts_ms, size_t broken_at)
{
    leat_assert(length <= CTR_LINE_BYTES_MAX && broken_at < length);
    const struct ctr_plants *plants = lines->plants;
    if (plants->duplicates > 0.0 || plants->late > 0.0 || plants->malformed > 0.0) {
        add_planted(lines, length, ts_ms, broken_at);
    } else {
        lines->out.length += length;
        lines->counts.lines++;
    }
    lines->counts.rows++;
    if (lines->out.length >= FLUSH_BYTES)
        flush(lines);
}

bool ctr_lines_finish(struct ctr_lines *lines)
{
    let_go_due(lines, UINT64_MAX);
    flush(lines);
    int error = lines->has_failed ? 0 : replacement_commit(&lines->file);
    if (error != 0)
        fail(lines, error);
    return !lines->has_failed;
}

void ctr_lines_close(struct ctr_lines *lines)
{
    for (size_t i = 0; i <= ARRAY_COUNT(lines->again); i++) {
        struct held_lines *held = i == 0 ? &lines->late : &lines->again[i - 1];
        while (held->first != NULL) {
            struct held_line *next = held->first->next;
            free(held->first);
            held->first = next;
        }
    }
    replacement_abandon(&lines->file);
    free(lines->path);
    buffer_free(&lines->out);
    lines->path = NULL;
}
