#include "core/log_line.h"

#include "core/civil.h"
#include "core/os.h"
#include "core/quote.h"

#include <stdatomic.h>
#include <unistd.h>

enum { JOB_BYTES_MAX = 1024, LAST_BYTES_MAX = 1024 };

const char *const log_level_names[] = {"info", "warning", "error"};

static atomic_int form;
static char job[JOB_BYTES_MAX + QUOTE_CHARACTER_BYTES_MAX + 2] = "null";

struct text {
    char *to;
    size_t length;
};

static void add(struct text *out, const char *text)
{
    while (*text != '\0')
        out->to[out->length++] = *text++;
}

/* Adds the text in quotes. room: of what is within the quotes; a text that needs more is cut between characters. */
static void add_quoted(struct text *out, struct str text, size_t room)
{
    size_t end = out->length + room;
    add(out, "\"");
    for (size_t at = 0, took; at < text.length && out->length + QUOTE_CHARACTER_BYTES_MAX <= end; at += took)
        out->length += quote_json_character(text.data + at, text.length - at, out->to + out->length, &took);
    add(out, "\"");
}

/* Adds a number with at least `least` digits. */
static void add_number(struct text *out, uint64_t number, int least)
{
    char digits[24];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) > 0 || count < least);
    while (count > 0)
        out->to[out->length++] = digits[--count];
}

/* RFC 3339, in UTC, with milliseconds. */
static void add_time(struct text *out, int64_t time_us)
{
    struct civil at = civil_from(time_us);
    const struct {
        int number, digits;
        const char *behind;
    } fields[] = {{(int)at.year, 4, "-"},
                  {at.month, 2, "-"},
                  {at.day, 2, "T"},
                  {at.hour, 2, ":"},
                  {at.minute, 2, ":"},
                  {at.second, 2, "."},
                  {at.microsecond / 1000, 3, "Z"}};
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        add_number(out, (uint64_t)MAX(fields[i].number, 0), fields[i].digits);
        add(out, fields[i].behind);
    }
}

void log_set_form(enum log_form to)
{
    atomic_store(&form, (int)to);
}

enum log_form log_form(void)
{
    return (enum log_form)atomic_load(&form);
}

void log_set_job(struct str name)
{
    struct text out = {job, 0};
    add_quoted(&out, name, JOB_BYTES_MAX);
    out.to[out.length] = '\0';
}

size_t log_line_json(char *out, enum log_level level, int64_t time_us, struct str text, uint64_t repeated)
{
    struct text line = {out, 0};
    leat_assert(text.length <= LOG_TEXT_BYTES_MAX);
    add(&line, "{\"time\":\"");
    add_time(&line, time_us);
    add(&line, "\",\"level\":\"");
    add(&line, log_level_names[level]);
    add(&line, "\",\"job\":");
    add(&line, job);
    add(&line, ",\"repeated\":");
    add_number(&line, repeated, 1);
    add(&line, ",\"text\":");
    add_quoted(&line, text, SIZE_MAX / 2);
    add(&line, "}\n");
    leat_assert(line.length <= log_json_room(text.length));
    return line.length;
}

/* The text without blank lines at its ends, and without `leat: `. */
static struct str bare(struct str text)
{
    static const char own[] = "leat: ";
    while (text.length > 0 && text.data[0] == '\n')
        text = (struct str){text.data + 1, text.length - 1};
    while (text.length > 0 && text.data[text.length - 1] == '\n')
        text.length--;
    if (text.length > strlen(own) && memcmp(text.data, own, strlen(own)) == 0)
        text = (struct str){text.data + strlen(own), text.length - strlen(own)};
    return text;
}

void log_last(enum log_level level, struct str text)
{
    char line[6 * LAST_BYTES_MAX + LOG_JSON_REST_BYTES];
    text.length = MIN(text.length, (size_t)LAST_BYTES_MAX);
    if (log_form() == LOG_FORM_JSON)
        text = (struct str){line, log_line_json(line, level, os_wall_us(), bare(text), 1)};
    ssize_t wrote = write(STDERR_FILENO, text.data, text.length);
    (void)wrote;
}
