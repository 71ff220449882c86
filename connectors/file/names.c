#include "connectors/file/names.h"

#include "core/buffer.h"
#include "core/civil.h"
#include "core/mem.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LIFE_DIGITS = 10 }; /* of names_copy */
#define DIGITS_5 "[0-9][0-9][0-9][0-9][0-9]"

static const char number_mark[] = "{n}", time_mark[] = "{time}";

char *names_pattern(struct str path, bool is_rolled)
{
    char *plain = mem_str(path);
    if (!is_rolled || strstr(plain, number_mark) != NULL || strstr(plain, time_mark) != NULL)
        return plain;
    char *slash = strrchr(plain, '/');
    char *name = slash == NULL ? plain : slash + 1;
    char *suffix = strchr(name + (name[0] == '.'), '.');
    size_t stem = suffix == NULL ? strlen(plain) : (size_t)(suffix - plain);
    char *pattern = mem_printf("%.*s-%s%s", (int)stem, plain, number_mark, plain + stem);
    free(plain);
    return pattern;
}

bool names_has_time(const char *pattern)
{
    return strstr(pattern, time_mark) != NULL;
}

bool names_repeat(const char *pattern)
{
    return strstr(pattern, number_mark) == NULL;
}

/* Appends the time without colons and dashes: 2015-09-12T00:46:58Z -> 20150912T004658Z. */
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

char *names_glob(const char *pattern, const char *ending)
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

/* Whether the pattern can produce the name; needed because glob(3) cannot match "digits only". */
static bool gives(const char *pattern, const char *name)
{
    for (; *pattern != '\0'; pattern++, name++) {
        bool is_number = strncmp(pattern, number_mark, strlen(number_mark)) == 0;
        bool is_time = strncmp(pattern, time_mark, strlen(time_mark)) == 0;
        if (is_number || is_time) {
            const char *rest = pattern + (is_number ? strlen(number_mark) : strlen(time_mark));
            size_t most = strspn(name, is_number ? "0123456789" : "0123456789TZ.-");
            for (size_t length = is_number ? 6 : 1; length <= most; length++)
                if (gives(rest, name + length))
                    return true;
            return false;
        }
        if (*pattern != *name)
            return false;
    }
    return *name == '\0';
}

char *names_copy(const char *path, uint32_t life)
{
    return mem_printf("%s.part.new-%010" PRIu32, path, life);
}

bool names_walk(const char *pattern, unsigned which, bool (*visit)(void *argument, const char *path),
                void *argument)
{
    static const struct {
        unsigned which;
        const char *ending; /* glob for what follows the pattern */
        size_t bytes;       /* length of that ending in a name */
    } all[] = {
        {NAMES_FINAL, "", 0},
        {NAMES_PART, ".part", sizeof(".part") - 1},
        {NAMES_COPY, ".part.new-" DIGITS_5 DIGITS_5, sizeof(".part.new-") - 1 + LIFE_DIGITS},
    };
    bool goes_on = true;
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        if ((which & all[i].which) == 0)
            continue;
        glob_t found = {0};
        char *text = names_glob(pattern, all[i].ending);
        if (glob(text, 0, NULL, &found) == 0)
            for (size_t j = 0; j < found.gl_pathc && goes_on; j++) {
                const char *path = found.gl_pathv[j];
                char *name = mem_str((struct str){path, strlen(path) - all[i].bytes});
                if (gives(pattern, name))
                    goes_on = visit(argument, path);
                free(name);
            }
        globfree(&found);
        free(text);
    }
    return goes_on;
}

static bool forget_earlier(void *argument, const char *path)
{
    const uint32_t *life = argument;
    if (strtoul(path + strlen(path) - LIFE_DIGITS, NULL, 10) < *life)
        (void)unlink(path);
    return true;
}

void names_forget_earlier(const char *pattern, uint32_t life)
{
    (void)names_walk(pattern, NAMES_COPY, forget_earlier, &life);
}
