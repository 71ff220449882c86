/* Calls state/objects for the tests, one command a line: words between tabs. Each is answered by a line of JSON: whether it went
 * well, what it gave, the diagnostics, and the figures of the store so far.
 *
 *     store_tool URL TRIES PAUSE_MS STALL_S
 *     check | put NAME TEXT | put_new NAME TEXT | put_file NAME PATH BYTES | get NAME MOST PATH | range NAME OFFSET BYTES PATH |
 *     get_file NAME BYTES PATH | head NAME | list PREFIX | delete NAME | abandon AGE_S | cancel_in MS */
#include "core/mem.h"
#include "core/os.h"
#include "core/quote.h"
#include "state/objects/objects.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORDS_MAX = 5, LINE_MAX_BYTES = 1 << 16 };

struct answer {
    struct arena arena;
    struct diag_list diags;
    struct byte_buffer gave; /* JSON */
    bool is_missing;
};

static struct objects *objects;
static int64_t cancel_in_us;

static void *cancel_later(void *nothing)
{
    usleep((useconds_t)cancel_in_us);
    objects_cancel(objects);
    return nothing;
}

static void quote_member(struct byte_buffer *out, const char *name, const char *text)
{
    buffer_printf(out, ",\"%s\":", name);
    quote_json(out, text == NULL ? (struct str){0} : str_from(text));
}

static void print_answer(struct answer *answer, bool ok)
{
    struct byte_buffer line = {0};
    struct objects_stats stats = {0};
    if (objects != NULL)
        objects_stats(objects, &stats);
    buffer_printf(
        &line,
        "{\"ok\":%s,\"missing\":%s,\"gave\":%.*s,\"up\":%llu,\"down\":%llu,\"requests\":%llu,\"retries\":%llu,",
        ok ? "true" : "false", answer->is_missing ? "true" : "false",
        answer->gave.length == 0 ? 4 : (int)answer->gave.length,
        answer->gave.length == 0 ? "null" : answer->gave.data, (unsigned long long)stats.bytes_up,
        (unsigned long long)stats.bytes_down, (unsigned long long)stats.requests,
        (unsigned long long)stats.retries);
    buffer_printf(&line, "\"diags\":[");
    for (unsigned i = 0; i < answer->diags.count; i++) {
        const struct diag *diag = &answer->diags.items[i];
        buffer_printf(&line, "%s{\"code\":\"%s\"", i == 0 ? "" : ",", diag_code_name(diag->code));
        quote_member(&line, "message", diag->message);
        quote_member(&line, "hint", diag->hint);
        quote_member(&line, "cause", diag->cause);
        quote_member(&line, "path", diag->path);
        buffer_printf(&line, "}");
    }
    buffer_printf(&line, "]}\n");
    if (fwrite(line.data, 1, line.length, stdout) != line.length || fflush(stdout) != 0)
        exit(1);
    buffer_free(&line);
}

/* Writes what was got to a file. */
static void write_out(const struct byte_buffer *bytes, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL ||
        fwrite(bytes->data == NULL ? "" : bytes->data, 1, bytes->length, file) != bytes->length ||
        fclose(file) != 0)
        exit(1);
}

static bool list(struct answer *answer, const char *prefix)
{
    struct objects_entry *entries;
    uint32_t count;
    if (!objects_list(objects, str_from(prefix), &answer->arena, &entries, &count, &answer->diags))
        return false;
    buffer_printf(&answer->gave, "[");
    for (uint32_t i = 0; i < count; i++) {
        buffer_printf(&answer->gave, "%s[", i == 0 ? "" : ",");
        quote_json(&answer->gave, entries[i].name);
        buffer_printf(&answer->gave, ",%llu]", (unsigned long long)entries[i].bytes);
    }
    buffer_printf(&answer->gave, "]");
    return true;
}

static unsigned long long number(const char *word)
{
    return strtoull(word, NULL, 10);
}

/* The commands that get something. */
static enum objects_result get(struct answer *answer, char *const *word)
{
    struct byte_buffer bytes = {0};
    struct str name = str_from(word[1]);
    uint64_t size = 0;
    enum objects_result result = OBJECTS_FAILED;
    if (strcmp(word[0], "get") == 0)
        result = objects_get(objects, name, number(word[2]), &bytes, &answer->diags);
    else if (strcmp(word[0], "range") == 0)
        result = objects_get_range(objects, name, number(word[2]), number(word[3]), &bytes, &answer->diags);
    else if (strcmp(word[0], "get_file") == 0)
        result = objects_get_file(objects, name, number(word[2]), word[3], &answer->diags);
    else if (strcmp(word[0], "head") == 0)
        result = objects_head(objects, name, &size, &answer->diags);
    if (strcmp(word[0], "head") == 0)
        buffer_printf(&answer->gave, "%llu", (unsigned long long)size);
    if (strcmp(word[0], "get") == 0)
        write_out(&bytes, word[3]);
    if (strcmp(word[0], "range") == 0)
        write_out(&bytes, word[4]);
    buffer_free(&bytes);
    return result;
}

static bool run(struct answer *answer, char *const *word)
{
    struct str name = str_from(word[1]);
    uint32_t count = 0;
    pthread_t thread;
    if (strcmp(word[0], "check") == 0)
        return objects_check(objects, &answer->diags);
    if (strcmp(word[0], "put") == 0)
        return objects_put(objects, name, word[2], strlen(word[2]), &answer->diags);
    if (strcmp(word[0], "put_new") == 0) {
        static const char *const results[] = {"failed", "taken", "alone", "unknown"};
        enum objects_new put = objects_put_new(objects, name, word[2], strlen(word[2]), &answer->diags);
        buffer_printf(&answer->gave, "\"%s\"", results[put]);
        return put != OBJECTS_NEW_FAILED;
    }
    if (strcmp(word[0], "put_file") == 0)
        return objects_put_file(objects, name, word[2], number(word[3]), &answer->diags);
    if (strcmp(word[0], "list") == 0)
        return list(answer, word[1]);
    if (strcmp(word[0], "delete") == 0)
        return objects_delete(objects, name, &answer->diags);
    if (strcmp(word[0], "abandon") == 0) {
        bool ok = objects_abandon(objects, (int64_t)number(word[1]) * US_PER_SECOND, &count, &answer->diags);
        buffer_printf(&answer->gave, "%u", count);
        return ok;
    }
    if (strcmp(word[0], "cancel_in") == 0) {
        cancel_in_us = (int64_t)number(word[1]) * 1000;
        return pthread_create(&thread, NULL, cancel_later, NULL) == 0 && pthread_detach(thread) == 0;
    }
    enum objects_result result = get(answer, word);
    answer->is_missing = result == OBJECTS_MISSING;
    return result == OBJECTS_DONE;
}

static void run_line(char *line)
{
    static char nothing[] = "";
    struct answer answer = {0};
    char *words[WORDS_MAX] = {nothing, nothing, nothing, nothing, nothing}, *rest = line;
    diag_list_init(&answer.diags, &answer.arena);
    for (size_t i = 0; i < WORDS_MAX && rest != NULL; i++)
        words[i] = strsep(&rest, "\t");
    print_answer(&answer, run(&answer, words));
    buffer_free(&answer.gave);
    arena_free(&answer.arena);
}

int main(int count, char **arguments)
{
    struct answer answer = {0};
    static char line[LINE_MAX_BYTES];
    if (count != 5)
        return 2;
    signal(SIGXFSZ, SIG_IGN); /* a full disk is played by a limit of a file's size */
    diag_list_init(&answer.diags, &answer.arena);
    struct objects_options options = {.url = str_from(arguments[1]),
                                      .tries = (uint32_t)number(arguments[2]),
                                      .pause_us = (int64_t)number(arguments[3]) * 1000,
                                      .pause_longest_us = (int64_t)number(arguments[3]) * 4000,
                                      .stall_us = (int64_t)number(arguments[4]) * US_PER_SECOND,
                                      .part_bytes = OBJECTS_PART_BYTES_MIN};
    objects = failpoints_init(&answer.diags) ? objects_open(&options, &answer.diags) : NULL;
    print_answer(&answer, objects != NULL);
    while (objects != NULL && fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        run_line(line);
    }
    objects_close(objects);
    arena_free(&answer.arena);
    return 0;
}
