#include "connectors/file/names.h"

#include "core/buffer.h"
#include "core/civil.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char number_mark[] = "{n}", time_mark[] = "{time}";

char *names_pattern(struct str path, bool is_rolled)
{
    char *plain = strndup(path.data, path.length);
    leat_assert(plain != NULL);
    if (!is_rolled || strstr(plain, number_mark) != NULL || strstr(plain, time_mark) != NULL)
        return plain;
    char *slash = strrchr(plain, '/');
    char *name = slash == NULL ? plain : slash + 1;
    char *suffix = strchr(name + (name[0] == '.'), '.');
    size_t stem = suffix == NULL ? strlen(plain) : (size_t)(suffix - plain);
    char *pattern;
    leat_assert(asprintf(&pattern, "%.*s-%s%s", (int)stem, plain, number_mark, plain + stem) >= 0);
    free(plain);
    return pattern;
}

bool names_has_time(const char *pattern)
{
    return strstr(pattern, time_mark) != NULL;
}

/* 2015-09-12T00:46:58Z -> 20150912T004658Z: no colons in names. */
static void append_time(struct byte_buffer *out, int64_t time_us)
{
    char text[32];
    size_t length = civil_format(time_us, text);
    for (size_t i = 0; i < length; i++)
        if (text[i] != ':' && (text[i] != '-' || i == 0))
            buffer_append(out, &text[i], 1);
}

char *names_expand(const char *pattern, int64_t number, int64_t time_us)
{
    struct byte_buffer out = {0};
    while (*pattern != '\0') {
        if (strncmp(pattern, number_mark, strlen(number_mark)) == 0) {
            buffer_printf(&out, "%06" PRId64, number);
            pattern += strlen(number_mark);
        } else if (strncmp(pattern, time_mark, strlen(time_mark)) == 0) {
            append_time(&out, time_us);
            pattern += strlen(time_mark);
        } else {
            buffer_append(&out, pattern++, 1);
        }
    }
    buffer_append(&out, "", 1);
    return out.data;
}

/* The pattern as a glob; what is special to glob(3) is taken literally. */
static char *as_glob(const char *pattern, const char *ending)
{
    struct byte_buffer out = {0};
    while (*pattern != '\0') {
        bool is_number = strncmp(pattern, number_mark, strlen(number_mark)) == 0;
        bool is_time = strncmp(pattern, time_mark, strlen(time_mark)) == 0;
        if (is_number || is_time) {
            buffer_printf(&out, is_number ? "[0-9][0-9][0-9][0-9][0-9][0-9]*" : "[0-9]*");
            pattern += is_number ? strlen(number_mark) : strlen(time_mark);
            continue;
        }
        if (strchr("*?[\\", *pattern) != NULL)
            buffer_append(&out, "\\", 1);
        buffer_append(&out, pattern++, 1);
    }
    buffer_append(&out, ending, strlen(ending) + 1);
    return out.data;
}

void names_remove_parts(const char *pattern)
{
    glob_t found = {0};
    char *text = as_glob(pattern, ".part");
    if (glob(text, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]); /* one that stays is reported by names_existing */
    globfree(&found);
    free(text);
}

char *names_existing(const char *pattern, bool remove)
{
    static const char *const endings[] = {"", ".part"};
    char *existing = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(endings) && existing == NULL; i++) {
        glob_t found = {0};
        char *text = as_glob(pattern, endings[i]);
        if (glob(text, 0, NULL, &found) == 0)
            for (size_t j = 0; j < found.gl_pathc && existing == NULL; j++)
                if (!remove || unlink(found.gl_pathv[j]) != 0)
                    existing = strdup(found.gl_pathv[j]);
        globfree(&found);
        free(text);
    }
    return existing;
}
