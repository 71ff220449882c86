/* The log: what is on stderr, and what is kept of it. stderr is a file here. */
#include "cmocka_all.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/quote.h"
#include "core/utf8.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What the function writes to stderr; the caller frees the text. */
static char *written(void (*function)(void))
{
    char path[] = "/tmp/leat_log_XXXXXX", *text;
    size_t bytes;
    int file = mkstemp(path), before = dup(STDERR_FILENO);
    assert_true(file >= 0 && before >= 0);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    function();
    log_end();
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(os_read_file(path, 1 << 26, &text, &bytes), 0);
    assert_int_equal(strlen(text), bytes); /* no NUL, either */
    unlink(path);
    close(file);
    close(before);
    return text;
}

static void expect(void (*function)(void), const char *text)
{
    char *found = written(function);
    assert_string_equal(found, text);
    free(found);
}

struct seen {
    uint32_t count;
    uint64_t first, last, repeated;
    enum log_level level;
    size_t bytes;
    char text[LOG_TEXT_BYTES_MAX + 1]; /* of the newest */
};

static void see(void *user, const struct log_line *line)
{
    struct seen *seen = user;
    if (seen->count++ == 0)
        seen->first = line->n;
    else
        assert_int_equal(line->n, seen->last + 1);
    seen->last = line->n;
    seen->repeated = line->repeated;
    seen->level = line->level;
    seen->bytes += line->text.length;
    assert_true(line->text.length <= LOG_TEXT_BYTES_MAX);
    assert_true(llabs(line->time_us - os_wall_us()) < 600 * US_PER_SECOND);
    memcpy(seen->text, line->text.data, line->text.length);
    seen->text[line->text.length] = '\0';
}

static struct seen since(uint64_t after)
{
    struct seen seen = {0};
    uint64_t newest = log_since(after, see, &seen);
    assert_true(seen.count == 0 || newest == seen.last);
    return seen;
}

static uint64_t newest(void)
{
    struct seen seen = since(0);
    return seen.last;
}

/* --- Text --- */

static void say_some(void)
{
    log_say(LOG_LEVEL_INFO, "%d and %s", 7, "seven");
    log_say(LOG_LEVEL_WARNING, "WARNING: the end is near");
    log_put(LOG_LEVEL_ERROR, STR("leat: one\n  two\n"));
    log_progress(STR("12 % done"));
}

static void test_text(void **state)
{
    (void)state;
    uint64_t before = newest();
    expect(say_some, "leat: 7 and seven\nleat: WARNING: the end is near\nleat: one\n  two\n12 % done\n");
    struct seen seen = since(before);
    assert_int_equal(seen.count, 3); /* progress is not kept */
    assert_int_equal(seen.first, before + 1);
    assert_string_equal(seen.text, "one\n  two");
    assert_int_equal(seen.level, LOG_LEVEL_ERROR);
    assert_int_equal(seen.repeated, 1);
    assert_string_equal(since(before + 2).text, "one\n  two");
    assert_int_equal(since(before + 3).count, 0);
    assert_int_equal(since(before + 100).count,
                     MIN(before + 3, (uint64_t)LOG_LINES_MAX)); /* of another process */
}

/* --- Lines that are said again --- */

static void say_again(void)
{
    for (int i = 0; i < 17; i++)
        log_say(LOG_LEVEL_WARNING, "no broker");
    log_look(); /* ten seconds have not passed */
    log_say(LOG_LEVEL_INFO, "a broker");
    log_say(LOG_LEVEL_WARNING, "no broker");
    log_say(LOG_LEVEL_INFO, "no broker"); /* of another level */
    log_say(LOG_LEVEL_INFO, "no broker");
}

static void test_repeated(void **state)
{
    (void)state;
    uint64_t before = newest();
    expect(say_again, "leat: no broker\nleat: no broker (said 17 times)\nleat: a broker\nleat: no broker\n"
                      "leat: no broker\nleat: no broker (said 2 times)\n");
    struct seen seen = since(before);
    assert_int_equal(seen.count, 6);
    assert_int_equal(seen.repeated, 2);
    assert_string_equal(seen.text, "no broker");
}

/* What goes on for longer is said once in ten seconds, with how often since it came first. */
static void say_over_and_over(void)
{
    for (int i = 0; i < 3; i++)
        log_say(LOG_LEVEL_WARNING, "no broker");
    usleep(LOG_REPEAT_US + 100 * 1000);
    log_look();
    log_say(LOG_LEVEL_WARNING, "no broker");
    log_say(LOG_LEVEL_WARNING, "no broker");
    log_look();
}

static void test_over_and_over(void **state)
{
    (void)state;
    expect(say_over_and_over,
           "leat: no broker\nleat: no broker (said 3 times)\nleat: no broker (said 5 times)\n");
}

/* --- Hostile texts --- */

static char *large;

static void say_hostile(void)
{
    log_say(LOG_LEVEL_INFO, "%s", "\x1b[2J\r\n\"<img onerror=x>\" \xe2\x80\xae|\xff|\xc3\xa4|\x7f\tend");
}

static void say_large(void)
{
    log_say(LOG_LEVEL_INFO, "%s", large);
    log_put(LOG_LEVEL_INFO, (struct str){large + 1, strlen(large) - 1});
}

static void test_hostile(void **state)
{
    (void)state;
    expect(say_hostile, "leat: \\x1B[2J\\x0D\\x0A\"<img onerror=x>\" \\u{202E}|\\xFF|\xc3\xa4|\\x7F\tend\n");
    large = mem_alloc((1 << 20) + 1);
    for (size_t i = 0; i < 1 << 20; i++)
        large[i] = "\xa4\xc3"[i % 2];
    large[0] = 'x'; /* so that the limit lies within a character */
    large[1 << 20] = '\0';
    char *found = written(say_large);
    const char *second = strchr(found, '\n') + 1;
    assert_int_equal(second - found,
                     6 + LOG_TEXT_BYTES_MAX - 1 + 4); /* cut between characters, and said so */
    assert_non_null(strstr(found, "\xa4...\n"));
    assert_true(strlen(second) < 2 * LOG_TEXT_BYTES_MAX);
    free(found);
    free(large);
}

/* --- JSON --- */

static json_t *only_object(const char *text)
{
    json_error_t error;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL)
        fail_msg("%s: %s", error.text, text);
    assert_int_equal(json_object_size(object), 5);
    assert_true(strchr(text, '\n') == text + strlen(text) - 1); /* one line */
    return object;
}

static void expect_json(void (*function)(void), const char *text, const char *level, int64_t repeated)
{
    char *found = written(function);
    json_t *object = only_object(found);
    const char *time = json_string_value(json_object_get(object, "time"));
    assert_string_equal(json_string_value(json_object_get(object, "text")), text);
    assert_string_equal(json_string_value(json_object_get(object, "level")), level);
    assert_int_equal(json_integer_value(json_object_get(object, "repeated")), repeated);
    assert_int_equal(strlen(time), strlen("2024-05-01T00:00:00.000Z"));
    assert_true(time[4] == '-' && time[10] == 'T' && time[19] == '.' && time[23] == 'Z');
    json_decref(object);
    free(found);
}

static void say_last(void)
{
    log_last(LOG_LEVEL_ERROR, STR("\nleat: error[E0803]: refused\nhint: more\n"));
}

static void say_diag(void)
{
    struct arena arena = {0};
    struct diag_list diags;
    struct diag_source source = {"a.leat", STR("job a\nsource b\n")};
    diag_list_init(&diags, &arena);
    diag_hint(&diags, diag_error(&diags, DIAG_NO_COLUMN, (struct span){6, 12}, "no \"%s\"", "x\xff"),
              "give it");
    log_diags(&diags, &source, true);
    arena_free(&arena);
}

static void test_json(void **state)
{
    (void)state;
    log_set_form(LOG_FORM_JSON);
    expect_json(say_hostile, "\x1b[2J\r\n\"<img onerror=x>\" \xe2\x80\xae|\xef\xbf\xbd|\xc3\xa4|\x7f\tend",
                "info", 1);
    expect_json(say_last, "error[E0803]: refused\nhint: more", "error", 1);
    log_set_job(STR("a\"b\xff"));
    char *found = written(say_last);
    json_t *object = only_object(found);
    assert_string_equal(json_string_value(json_object_get(object, "job")), "a\"b\xef\xbf\xbd");
    json_decref(object);
    free(found);
    /* A diagnostic is one line, without colour. */
    char *text = written(say_diag);
    object = only_object(text);
    const char *said = json_string_value(json_object_get(object, "text"));
    assert_non_null(strstr(said, "a.leat:2:1: error["));
    assert_non_null(strstr(said, "    2 | source b\n      | ^~~~~~\n      hint: give it"));
    assert_null(strchr(said, '\x1b'));
    json_decref(object);
    free(text);
    log_set_form(LOG_FORM_TEXT);
    text = written(say_diag);
    assert_non_null(strstr(text, "\x1b[1m"));
    free(text);
}

/* Any bytes become JSON that is valid, and any valid text comes back as it was. */
static void test_quote(void **state)
{
    (void)state;
    srand(1);
    for (int round = 0; round < 20000; round++) {
        char bytes[16];
        size_t length = (size_t)rand() % sizeof(bytes);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (char)(rand() % 3 == 0 ? rand() % 256
                                              : "\"\\\n\xc3\xa4\xe2\x80\xae\xed\xa0\x80<"[rand() % 12]);
        struct byte_buffer out = {0};
        quote_json(&out, (struct str){bytes, length});
        json_t *value = json_loadb(out.data, out.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        if (utf8_is_valid((struct str){bytes, length})) {
            assert_int_equal(json_string_length(value), length);
            assert_memory_equal(json_string_value(value), bytes, length);
        }
        json_decref(value);
        buffer_free(&out);
    }
    struct byte_buffer out = {0};
    quote_json(&out, (struct str){NULL, 0});
    assert_true(str_is((struct str){out.data, out.length}, "null"));
    buffer_free(&out);
}

/* --- The ring --- */

static void say_many(void)
{
    static char text[LOG_TEXT_BYTES_MAX + 1];
    memset(text, 'x', sizeof(text) - 1);
    for (int i = 0; i < 3 * LOG_LINES_MAX; i++)
        log_say(LOG_LEVEL_INFO, "line %d", i);
    assert_int_equal(since(0).count, LOG_LINES_MAX);
    for (int i = 0; i < 2 * LOG_LINES_MAX; i++)
        log_say(LOG_LEVEL_INFO, "%d%s", i, text);
}

static void test_ring(void **state)
{
    (void)state;
    uint64_t before = newest();
    free(written(say_many));
    struct seen seen = since(0);
    assert_int_equal(seen.last, before + 5 * LOG_LINES_MAX);
    assert_true(seen.bytes <= LOG_KEPT_BYTES_MAX);
    assert_int_equal(seen.count, LOG_KEPT_BYTES_MAX / LOG_TEXT_BYTES_MAX);
}

enum { THREADS = 4, SAID = 500 };

static void *speak(void *name)
{
    for (int i = 0; i < SAID; i++) {
        log_say(LOG_LEVEL_INFO, "thread %s says %d", (const char *)name, i);
        (void)since(0);
        log_look();
    }
    return NULL;
}

static void say_together(void)
{
    pthread_t threads[THREADS];
    static char names[THREADS][2] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, speak, names[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void test_threads(void **state)
{
    (void)state;
    uint64_t before = newest();
    char *found = written(say_together);
    uint32_t lines = 0;
    for (const char *at = found; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_int_equal(lines, THREADS * SAID);
    assert_int_equal(newest(), before + THREADS * SAID);
    for (const char *at = found; *at != '\0'; at = strchr(at, '\n') + 1)
        assert_memory_equal(at, "leat: thread ", 13);
    free(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),    cmocka_unit_test(test_repeated), cmocka_unit_test(test_over_and_over),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_json),     cmocka_unit_test(test_quote),
        cmocka_unit_test(test_ring),    cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
