/* Diagnostics as text for people and as JSON for programs, and "did you mean"; part of core/diag.h.
 *
 * Printed texts may contain bytes from a job file, a record or a path: in text, control characters and
 * bytes that are not UTF-8 become \xNN, so that no message can control a terminal; in JSON they are
 * escaped or replaced. */
#include "core/diag.h"

#include "core/mem.h"
#include "core/utf8.h"

#include <stdlib.h>

enum { WINDOW_COLUMNS = 110, TAB_COLUMNS = 4 };

static const char bold[] = "\033[1m", red[] = "\033[1;31m", yellow[] = "\033[1;33m", cyan[] = "\033[1;36m",
                  green[] = "\033[1;32m", plain[] = "\033[0m";

struct painter {
    FILE *out;
    bool color;
    const struct diag_source *source;
    /* Offset at which each line of the source begins; `lines` is their number. */
    uint32_t *line_begins;
    uint32_t lines;
};

static void paint(const struct painter *painter, const char *escape)
{
    if (painter->color)
        fputs(escape, painter->out);
}

/* Decodes one character. If it is not valid UTF-8, returns false with *length 1. */
static bool decode(const char *data, size_t left, uint32_t *code, uint32_t *length)
{
    size_t bytes = utf8_decode(data, left, code);
    *length = (uint32_t)MAX(bytes, 1);
    return bytes > 0;
}

/* Columns that the character takes on a terminal: East Asian wide characters take two,
 * combining marks none. */
static uint32_t code_columns(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } wide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},  {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
                {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F},
                {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
    if ((code >= 0x300 && code <= 0x36F) || (code >= 0x200B && code <= 0x200F) || code == 0xFEFF)
        return 0;
    for (size_t i = 0; i < ARRAY_COUNT(wide); i++)
        if (code >= wide[i].first && code <= wide[i].last)
            return 2;
    return 1;
}

/* Columns of the character at `data` when shown at column `column`. *length: the character's bytes. */
static uint32_t shown_columns(const char *data, size_t left, uint32_t column, uint32_t *length)
{
    uint32_t code;
    if (!decode(data, left, &code, length))
        return 4;
    if (code == '\t')
        return TAB_COLUMNS - column % TAB_COLUMNS;
    if (utf8_is_control(code))
        return code < 0x100 ? 4 : 8;
    return code_columns(code);
}

static void print_char(FILE *out, const char *data, size_t left, uint32_t columns)
{
    uint32_t code, length;
    bool is_valid = decode(data, left, &code, &length);
    if (is_valid && code == '\t')
        fprintf(out, "%*s", (int)columns, "");
    else if (is_valid && utf8_is_control(code))
        fprintf(out, code < 0x100 ? "\\x%02X" : "\\u{%04X}", code);
    else if (is_valid)
        fwrite(data, 1, length, out);
    else
        fprintf(out, "\\x%02X", (unsigned)(unsigned char)data[0]);
}

static void print_text(FILE *out, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        uint32_t length, columns = shown_columns(text, left, 0, &length);
        if (*text == '\t')
            fputc(' ', out);
        else
            print_char(out, text, left, columns);
        text += length;
        left -= length;
    }
}

/* A place in the source; line and column count from 1, columns count characters. */
struct place {
    uint32_t line, column;
    uint32_t begin, end; /* byte range of the line, without the line end */
};

static void index_lines(struct painter *painter)
{
    struct str text = painter->source->text;
    uint32_t lines = 1;
    for (size_t i = 0; i < text.length; i++)
        lines += text.data[i] == '\n';
    painter->line_begins = mem_alloc(lines * sizeof(uint32_t));
    if (painter->line_begins == NULL)
        return; /* places are then shown without lines */
    painter->line_begins[painter->lines++] = 0;
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] == '\n')
            painter->line_begins[painter->lines++] = (uint32_t)i + 1;
}

static struct place place_of(const struct painter *painter, uint32_t offset)
{
    struct str text = painter->source->text;
    offset = MIN(offset, (uint32_t)text.length);
    uint32_t low = 0, high = painter->lines;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (painter->line_begins[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    struct place place = {.line = low + 1, .column = 1, .begin = painter->line_begins[low]};
    for (uint32_t at = place.begin, length, code; at < offset; at += length, place.column++)
        decode(text.data + at, text.length - at, &code, &length);
    place.end = low + 1 < painter->lines ? painter->line_begins[low + 1] - 1 : (uint32_t)text.length;
    if (place.end > place.begin && text.data[place.end - 1] == '\r')
        place.end--;
    return place;
}

/* The part of a long line that is shown: bytes [from, to). */
struct window {
    uint32_t from, to;
    bool is_cut_left, is_cut_right;
};

/* Moves a position within a character to the character's end. */
static uint32_t character_border(const char *data, uint32_t at, uint32_t end)
{
    while (at < end && ((unsigned char)data[at] & 0xC0) == 0x80)
        at++;
    return at;
}

static struct window window_of(const struct painter *painter, const struct place *place, uint32_t offset)
{
    /* In a very long line only the NEAR_BYTES bytes before and behind the place are examined. */
    enum { NEAR_BYTES = 8 * WINDOW_COLUMNS };
    const char *data = painter->source->text.data;
    uint32_t begin = place->begin, end = place->end;
    offset = MIN(offset, end);
    if (offset - begin > NEAR_BYTES)
        begin = character_border(data, offset - NEAR_BYTES, end);
    if (end - offset > NEAR_BYTES)
        end = character_border(data, offset + NEAR_BYTES, end);
    struct window window = {begin, end, false, false};
    uint32_t column = 0, at_offset = 0, length;
    for (uint32_t at = begin; at < end; at += length) {
        if (at <= offset)
            at_offset = column;
        column += shown_columns(data + at, end - at, column, &length);
    }
    if (column > WINDOW_COLUMNS) {
        uint32_t first = at_offset > WINDOW_COLUMNS / 2 ? at_offset - WINDOW_COLUMNS / 2 : 0;
        column = 0;
        for (uint32_t at = begin; at < end; at += length) {
            if (column <= first)
                window.from = at;
            if (column <= first + WINDOW_COLUMNS)
                window.to = at;
            column += shown_columns(data + at, end - at, column, &length);
        }
    }
    window.is_cut_left = window.from > place->begin;
    window.is_cut_right = window.to < place->end;
    return window;
}

/* Prints the source line of the span and the marks under it. */
static void print_line(const struct painter *painter, struct span span, const char *escape)
{
    FILE *out = painter->out;
    struct place place = place_of(painter, span.begin);
    struct window window = window_of(painter, &place, span.begin);
    const char *data = painter->source->text.data;
    uint32_t end = MIN(MAX(span.end, span.begin + 1), window.to), length;
    fprintf(out, "%5u | %s", place.line, window.is_cut_left ? "..." : "");
    uint32_t column = 0, mark_begin = 0, mark_end = 0;
    for (uint32_t at = window.from; at < window.to; at += length) {
        if (at == span.begin)
            mark_begin = column;
        uint32_t columns = shown_columns(data + at, window.to - at, column, &length);
        print_char(out, data + at, window.to - at, columns);
        column += columns;
        if (at + length <= end)
            mark_end = column;
    }
    if (span.begin >= window.to)
        mark_begin = column;
    fprintf(out, "%s\n      | %*s", window.is_cut_right ? "..." : "",
            (int)(mark_begin + (window.is_cut_left ? 3 : 0)), "");
    paint(painter, escape);
    fputc('^', out);
    for (uint32_t i = mark_begin + 1; i < mark_end; i++)
        fputc('~', out);
    paint(painter, plain);
    fputc('\n', out);
}

static bool has_place(const struct painter *painter, struct span span)
{
    return painter->lines > 0 && (span.begin != 0 || span.end != 0);
}

/* Prints `path:line:col: `, as far as the place is known. */
static void print_place(const struct painter *painter, struct span span)
{
    paint(painter, bold);
    print_text(painter->out, painter->source->path != NULL ? painter->source->path : "leat");
    if (has_place(painter, span)) {
        struct place place = place_of(painter, span.begin);
        fprintf(painter->out, ":%u:%u", place.line, place.column);
    }
    fputs(": ", painter->out);
    paint(painter, plain);
}

static void print_other_place(const struct painter *painter, const struct diag *diag)
{
    paint(painter, bold);
    print_text(painter->out, diag->path);
    if (diag->line >= 0)
        fprintf(painter->out, ":%lld", (long long)diag->line);
    fputs(": ", painter->out);
    paint(painter, plain);
}

static void print_extra(const struct painter *painter, const char *what, const char *text, const char *escape)
{
    if (text == NULL)
        return;
    fputs("      ", painter->out);
    paint(painter, escape);
    fprintf(painter->out, "%s: ", what);
    paint(painter, plain);
    print_text(painter->out, text);
    fputc('\n', painter->out);
}

static void print_note(const struct painter *painter, const char *text)
{
    paint(painter, cyan);
    fputs("note: ", painter->out);
    paint(painter, plain);
    print_text(painter->out, text);
    fputc('\n', painter->out);
}

static const char *severity_name(const struct diag *diag)
{
    return diag->severity == DIAG_ERROR ? "error" : diag->severity == DIAG_WARNING ? "warning" : "note";
}

static void print_diag(const struct painter *painter, const struct diag *diag)
{
    FILE *out = painter->out;
    const char *escape = diag->severity == DIAG_ERROR ? red : diag->severity == DIAG_WARNING ? yellow : cyan;
    if (diag->path != NULL)
        print_other_place(painter, diag);
    else
        print_place(painter, diag->span);
    paint(painter, escape);
    fputs(severity_name(diag), out);
    if (diag->code != DIAG_NONE)
        fprintf(out, "[%s]", diag_code_name(diag->code));
    fputs(": ", out);
    paint(painter, plain);
    paint(painter, bold);
    print_text(out, diag->message);
    if (diag->path != NULL && diag->offset >= 0)
        fprintf(out, " (at byte %lld)", (long long)diag->offset);
    paint(painter, plain);
    fputc('\n', out);
    if (diag->path != NULL && has_place(painter, diag->span)) {
        print_place(painter, diag->span);
        print_note(painter, "asked for here");
    }
    if (has_place(painter, diag->span))
        print_line(painter, diag->span, diag->path != NULL ? cyan : escape);
    for (unsigned i = 0; i < diag->labels_count; i++) {
        print_place(painter, diag->labels[i].span);
        print_note(painter, diag->labels[i].message);
        if (has_place(painter, diag->labels[i].span))
            print_line(painter, diag->labels[i].span, cyan);
    }
    print_extra(painter, "cause", diag->cause, yellow);
    print_extra(painter, "hint", diag->hint, green);
}

static void painter_init(struct painter *painter, FILE *out, const struct diag_source *source, bool color)
{
    static const struct diag_source nothing = {0};
    *painter = (struct painter){.out = out, .color = color, .source = source != NULL ? source : &nothing};
    if (source != NULL && source->text.data != NULL && source->text.length < UINT32_MAX)
        index_lines(painter);
}

static uint32_t order_of(const struct diag *diag)
{
    return diag->path == NULL ? diag->span.begin : 0;
}

static int compare_places(const void *left, const void *right)
{
    const struct diag *const *a = left, *const *b = right;
    uint32_t first = order_of(*a), second = order_of(*b);
    return first != second ? (first < second ? -1 : 1) : *a < *b ? -1 : *a > *b;
}

unsigned diag_in_order(const struct diag_list *list, const struct diag *sorted[DIAG_MAX])
{
    leat_assert(list->count <= DIAG_MAX);
    for (unsigned i = 0; i < list->count; i++)
        sorted[i] = &list->items[i];
    if (list->count > 0)
        qsort(sorted, list->count, sizeof(sorted[0]), compare_places);
    return list->count;
}

void diag_print(FILE *out, const struct diag_list *list, const struct diag_source *source, bool color)
{
    struct painter painter;
    const char *no_color = getenv("NO_COLOR");
    painter_init(&painter, out, source, color && (no_color == NULL || no_color[0] == '\0'));
    const struct diag *sorted[DIAG_MAX];
    unsigned count = diag_in_order(list, sorted);
    for (unsigned i = 0; i < count; i++)
        print_diag(&painter, sorted[i]);
    if (list->dropped > 0)
        fprintf(out, "... and %u more\n", list->dropped);
    free(painter.line_begins);
}

static void json_text(FILE *out, const char *text)
{
    if (text == NULL) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    size_t left = strlen(text);
    while (left > 0) {
        uint32_t code, length;
        if (!decode(text, left, &code, &length))
            fputs("\\ufffd", out);
        else if (code == '"' || code == '\\')
            fprintf(out, "\\%c", (char)code);
        else if (code < 0x20 || code == 0x7F)
            fprintf(out, "\\u%04x", code);
        else
            fwrite(text, 1, length, out);
        text += length;
        left -= length;
    }
    fputc('"', out);
}

static void json_number(FILE *out, const char *name, int64_t value)
{
    if (value >= 0)
        fprintf(out, ",\"%s\":%lld", name, (long long)value);
    else
        fprintf(out, ",\"%s\":null", name);
}

static void json_span(const struct painter *painter, struct span span)
{
    bool is_known = has_place(painter, span);
    struct place begin = {0}, end = {0};
    if (is_known) {
        begin = place_of(painter, span.begin);
        end = place_of(painter, span.end);
    }
    json_number(painter->out, "line", is_known ? (int64_t)begin.line : -1);
    json_number(painter->out, "column", is_known ? (int64_t)begin.column : -1);
    json_number(painter->out, "end_line", is_known ? (int64_t)end.line : -1);
    json_number(painter->out, "end_column", is_known ? (int64_t)end.column : -1);
}

static void json_diag(const struct painter *painter, const struct diag *diag)
{
    FILE *out = painter->out;
    fprintf(out, "{\"severity\":\"%s\",\"code\":", severity_name(diag));
    json_text(out, diag->code != DIAG_NONE ? diag_code_name(diag->code) : NULL);
    fputs(",\"message\":", out);
    json_text(out, diag->message);
    fputs(",\"file\":", out);
    json_text(out, diag->path != NULL ? diag->path : painter->source->path);
    if (diag->path != NULL) {
        json_number(out, "line", diag->line);
        fputs(",\"column\":null,\"end_line\":null,\"end_column\":null", out);
        json_number(out, "offset", diag->offset);
    } else {
        json_span(painter, diag->span);
    }
    fputs(",\"hint\":", out);
    json_text(out, diag->hint);
    fputs(",\"cause\":", out);
    json_text(out, diag->cause);
    fputs(",\"labels\":[", out);
    for (unsigned i = 0; i < diag->labels_count; i++) {
        fputs(i > 0 ? ",{\"message\":" : "{\"message\":", out);
        json_text(out, diag->labels[i].message);
        json_span(painter, diag->labels[i].span);
        fputc('}', out);
    }
    fputs("]}", out);
}

void diag_print_json(FILE *out, const struct diag_list *list, const struct diag_source *source)
{
    struct painter painter;
    painter_init(&painter, out, source, false);
    const struct diag *sorted[DIAG_MAX];
    unsigned count = diag_in_order(list, sorted);
    fputc('[', out);
    for (unsigned i = 0; i < count; i++) {
        fputs(i > 0 ? ",\n" : "", out);
        json_diag(&painter, sorted[i]);
    }
    fputs("]\n", out);
    free(painter.line_begins);
}

enum { NEAREST_LENGTH_MAX = 64 };

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Edit distance with swaps of neighbours (optimal string alignment), case ignored. */
static size_t edit_distance(struct str a, struct str b)
{
    size_t rows[3][NEAREST_LENGTH_MAX + 1];
    size_t *before = rows[0], *previous = rows[1], *current = rows[2];
    for (size_t j = 0; j <= b.length; j++)
        previous[j] = j;
    for (size_t i = 1; i <= a.length; i++) {
        current[0] = i;
        for (size_t j = 1; j <= b.length; j++) {
            bool is_same = lower(a.data[i - 1]) == lower(b.data[j - 1]);
            size_t least = MIN(previous[j] + 1, current[j - 1] + 1);
            least = MIN(least, previous[j - 1] + !is_same);
            if (i > 1 && j > 1 && lower(a.data[i - 1]) == lower(b.data[j - 2]) &&
                lower(a.data[i - 2]) == lower(b.data[j - 1]))
                least = MIN(least, before[j - 2] + 1);
            current[j] = least;
        }
        size_t *oldest = before;
        before = previous;
        previous = current;
        current = oldest;
    }
    return previous[b.length];
}

const char *diag_nearest(struct str word, const char *const *candidates, size_t count)
{
    if (word.length == 0 || word.length > NEAREST_LENGTH_MAX)
        return NULL;
    const char *nearest = NULL;
    size_t least = word.length < 3 ? 2 : word.length / 3 + 2; /* the first distance that is too large */
    for (size_t i = 0; i < count; i++) {
        struct str candidate = str_from(candidates[i]);
        if (candidate.length == 0 || candidate.length > NEAREST_LENGTH_MAX)
            continue;
        size_t distance = edit_distance(word, candidate);
        if (distance < least && distance < MAX(word.length, candidate.length)) {
            least = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}
