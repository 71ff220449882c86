#include "core/log.h"

#include "core/buffer.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What was said last. shown: how it was written, with its newline. */
struct said {
    enum log_level level;
    char *text, *shown;
    size_t text_bytes, shown_bytes;
    uint64_t count,
        written; /* how often it was said since it came first; of these, how many are written or counted in a line */
    int64_t begun_us; /* monotonic: when it was written last; text NULL: there is nothing to compare with */
};

/* `order` is held while a line is written, so that lines are kept in the order in which they are written; it guards `last`.
 * `mutex` guards the lines, and is never held while anything is written. */
static struct {
    pthread_mutex_t order, mutex;
    struct said last;
    struct log_line lines[LOG_LINES_MAX]; /* line n is at n % LOG_LINES_MAX; its text is malloc'd */
    uint64_t first, next;                 /* numbers [first, next) are kept */
    size_t bytes;
} kept = {.order = PTHREAD_MUTEX_INITIALIZER, .mutex = PTHREAD_MUTEX_INITIALIZER, .first = 1, .next = 1};

/* --- Texts --- */

/* Length of the text's beginning that is not cut off. */
static size_t cut(struct str text)
{
    size_t length = MIN(text.length, (size_t)LOG_TEXT_BYTES_MAX);
    for (int back = 0; length < text.length && back < UTF8_BYTES_MAX && length > 0; back++, length--)
        if (((unsigned char)text.data[length] & 0xC0) != 0x80)
            return length; /* the byte behind it begins a character */
    return MIN(text.length, (size_t)LOG_TEXT_BYTES_MAX);
}

/* Appends the text as people see it. */
static void add_shown(struct byte_buffer *out, struct str text, bool may_have_newlines)
{
    for (size_t at = 0, bytes; at < text.length; at += MAX(bytes, (size_t)1)) {
        uint32_t code;
        bytes = utf8_decode(text.data + at, text.length - at, &code);
        if (bytes == 0)
            buffer_printf(out, "\\x%02X", (unsigned)(unsigned char)text.data[at]);
        else if (code == '\t' || (code == '\n' && may_have_newlines))
            buffer_append(out, text.data + at, 1);
        else if (utf8_is_control(code))
            buffer_printf(out, code < 0x100 ? "\\x%02X" : "\\u{%04X}", code);
        else
            buffer_append(out, text.data + at, bytes);
    }
}

/* The text without a beginning that it may have. */
static struct str without(struct str text, const char *beginning)
{
    size_t length = strlen(beginning);
    if (text.length < length || memcmp(text.data, beginning, length) != 0)
        return text;
    return (struct str){text.data + length, text.length - length};
}

/* --- Lines that are kept --- */

static void drop_oldest(void)
{
    struct log_line *line = &kept.lines[kept.first++ % LOG_LINES_MAX];
    kept.bytes -= line->text.length;
    free((char *)(uintptr_t)line->text.data);
}

static void keep(enum log_level level, struct str text, int64_t time_us, uint64_t repeated)
{
    char *copy = mem_str(text);
    pthread_mutex_lock(&kept.mutex);
    while (kept.next > kept.first &&
           (kept.next - kept.first == LOG_LINES_MAX || kept.bytes + text.length > LOG_KEPT_BYTES_MAX))
        drop_oldest();
    kept.lines[kept.next % LOG_LINES_MAX] = (struct log_line){.n = kept.next,
                                                              .time_us = time_us,
                                                              .level = level,
                                                              .repeated = repeated,
                                                              .text = {copy, text.length}};
    kept.next++;
    kept.bytes += text.length;
    pthread_mutex_unlock(&kept.mutex);
}

uint64_t log_since(uint64_t after, void (*take)(void *user, const struct log_line *line), void *user)
{
    pthread_mutex_lock(&kept.mutex);
    if (after >= kept.next)
        after = 0;
    for (uint64_t n = MAX(kept.first, after + 1); n < kept.next; n++)
        take(user, &kept.lines[n % LOG_LINES_MAX]);
    uint64_t newest = kept.next - 1;
    pthread_mutex_unlock(&kept.mutex);
    return newest;
}

/* --- Lines that are written --- */

static void write_json(enum log_level level, struct str text, int64_t time_us, uint64_t repeated)
{
    char *line = mem_alloc(log_json_room(text.length));
    size_t bytes = log_line_json(line, level, time_us, text, repeated);
    (void)os_write_all(STDERR_FILENO, line, bytes, NULL); /* nobody can be told that it does not go */
    free(line);
}

/* Writes and keeps what was said last. */
static void write_last(void)
{
    struct said *last = &kept.last;
    struct str text = {last->text, last->text_bytes};
    int64_t time_us = os_wall_us();
    keep(last->level, text, time_us, last->count);
    if (log_form() == LOG_FORM_JSON) {
        write_json(last->level, text, time_us, last->count);
    } else if (last->count == 1) {
        (void)os_write_all(STDERR_FILENO, last->shown, last->shown_bytes, NULL);
    } else {
        struct byte_buffer out = {0};
        buffer_printf(&out, "%.*s (said %" PRIu64 " times)\n", (int)last->shown_bytes - 1, last->shown,
                      last->count);
        (void)os_write_all(STDERR_FILENO, out.data, out.length, NULL);
        buffer_free(&out);
    }
    last->written = last->count;
    last->begun_us = os_monotonic_us();
}

/* Ends the counting of what was said last: writes it once more if it was only counted. */
static void forget_last(void)
{
    struct said *last = &kept.last;
    if (last->text != NULL && last->count > last->written)
        write_last();
    free(last->text);
    free(last->shown);
    *last = (struct said){0};
}

/* Once its time has passed: writes what was said last once more if it was said again, else forgets it. */
static void look(int64_t now)
{
    if (kept.last.text == NULL || now - kept.last.begun_us < LOG_REPEAT_US)
        return;
    if (kept.last.count > kept.last.written)
        write_last();
    else
        forget_last();
}

/* text: what is kept and compared. shown: how it is written as text, with its newline. */
static void say(enum log_level level, struct str text, struct str shown)
{
    text.length = cut(text);
    pthread_mutex_lock(&kept.order);
    struct said *last = &kept.last;
    look(os_monotonic_us());
    if (last->text != NULL && last->level == level &&
        str_equal(text, (struct str){last->text, last->text_bytes})) {
        last->count++;
    } else {
        forget_last();
        *last = (struct said){.level = level,
                              .text = mem_str(text),
                              .text_bytes = text.length,
                              .shown = mem_str(shown),
                              .shown_bytes = shown.length,
                              .count = 1};
        write_last();
    }
    pthread_mutex_unlock(&kept.order);
}

void log_say(enum log_level level, const char *format, ...)
{
    struct byte_buffer text = {0}, shown = {0};
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *to = buffer_reserve(&text, (size_t)MAX(length, 0) + 1);
    to[0] = '\0';
    (void)vsnprintf(to, (size_t)MAX(length, 0) + 1, format, again);
    text.length = (size_t)MAX(length, 0);
    va_end(again);
    va_end(arguments);
    struct str all = {text.data, text.length};
    size_t whole = all.length;
    all.length = cut(all);
    buffer_printf(&shown, "leat: ");
    add_shown(&shown, all, false);
    buffer_printf(&shown, whole > all.length ? "...\n" : "\n");
    say(level, without(all, "WARNING: "), (struct str){shown.data, shown.length});
    buffer_free(&shown);
    buffer_free(&text);
}

void log_put(enum log_level level, struct str text)
{
    struct byte_buffer shown = {0};
    while (text.length > 0 && text.data[text.length - 1] == '\n')
        text.length--;
    size_t whole = text.length;
    text.length = cut(text);
    add_shown(&shown, text, true);
    buffer_printf(&shown, whole > text.length ? "...\n" : "\n");
    say(level, without(text, "leat: "), (struct str){shown.data, shown.length});
    buffer_free(&shown);
}

/* A diagnostic as diag_print prints it; the caller frees the text. */
static char *printed(const struct diag *diag, const struct diag_source *source, bool color, size_t *bytes)
{
    char *text = NULL;
    struct diag one = *diag;
    struct diag_list list = {.items = &one, .count = 1};
    FILE *out = open_memstream(&text, bytes);
    if (out == NULL)
        refused_memory(0);
    diag_print(out, &list, source, color);
    fclose(out);
    return text;
}

void log_diags(const struct diag_list *list, const struct diag_source *source, bool color)
{
    const struct diag *sorted[DIAG_MAX];
    unsigned count = diag_in_order(list, sorted);
    for (unsigned i = 0; i < count; i++) {
        enum log_level level = sorted[i]->severity == DIAG_ERROR     ? LOG_LEVEL_ERROR
                               : sorted[i]->severity == DIAG_WARNING ? LOG_LEVEL_WARNING
                                                                     : LOG_LEVEL_INFO;
        struct str text, shown;
        text.data = printed(sorted[i], source, false, &text.length);
        shown.data = printed(sorted[i], source, color, &shown.length);
        text.length -= text.length > 0; /* the newline */
        say(level, without(text, "leat: "), shown);
        free((char *)(uintptr_t)text.data);
        free((char *)(uintptr_t)shown.data);
    }
    if (list->dropped > 0) {
        char more[64];
        snprintf(more, sizeof(more), "... and %u more", list->dropped);
        log_put(LOG_LEVEL_WARNING, str_from(more));
    }
}

void log_progress(struct str text)
{
    struct byte_buffer shown = {0};
    text.length = cut(text);
    pthread_mutex_lock(&kept.order);
    if (log_form() == LOG_FORM_JSON) {
        write_json(LOG_LEVEL_INFO, text, os_wall_us(), 1);
    } else {
        add_shown(&shown, text, false);
        buffer_printf(&shown, "\n");
        (void)os_write_all(STDERR_FILENO, shown.data, shown.length, NULL);
    }
    pthread_mutex_unlock(&kept.order);
    buffer_free(&shown);
}

void log_look(void)
{
    if (pthread_mutex_trylock(&kept.order) != 0) /* somebody is saying something, and looks, too */
        return;
    look(os_monotonic_us());
    pthread_mutex_unlock(&kept.order);
}

void log_end(void)
{
    pthread_mutex_lock(&kept.order);
    forget_last();
    pthread_mutex_unlock(&kept.order);
}
