/* Failpoints; part of core/os.h. failpoints_init writes `rules` once, before any other thread starts. */
#include "core/batch.h"
#include "core/option.h"
#include "core/os.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum failpoint_action {
    FAILPOINT_NOTHING,
    FAILPOINT_KILL,
    FAILPOINT_STOP,
    FAILPOINT_EXIT,
    FAILPOINT_ERROR,
    FAILPOINT_SLEEP
};

static const char *const names[] = {
#define FAILPOINT(name) name,
#include "core/failpoints.def"
#undef FAILPOINT
};

static struct failpoint_rule {
    enum failpoint_action action;
    int argument; /* errno or milliseconds */
    unsigned at;  /* passage at which the action happens, from 1; 0: every passage */
    atomic_uint passages;
} rules[ARRAY_COUNT(names)];

static atomic_bool is_active;
static int64_t cut_records, state_bytes, placement_seed,
    store_delay_ms; /* LEAT_TEST_CUT, _STATE, _PLACEMENT, _STORE_DELAY; 0: not set */

const char *const *failpoint_names(size_t *count)
{
    *count = ARRAY_COUNT(names);
    return names;
}

int failpoint(const char *name)
{
    if (likely(!atomic_load_explicit(&is_active, memory_order_relaxed)))
        return 0;
    size_t index = 0;
    while (index < ARRAY_COUNT(names) && strcmp(names[index], name) != 0)
        index++;
    leat_assert(index < ARRAY_COUNT(names));
    struct failpoint_rule *rule = &rules[index];
    unsigned passage = 1 + atomic_fetch_add(&rule->passages, 1);
    if (rule->action == FAILPOINT_NOTHING || (rule->at != 0 && passage != rule->at))
        return 0;
    switch (rule->action) {
    case FAILPOINT_KILL:
        kill(getpid(), SIGKILL);
        pause();
        return EIO;
    case FAILPOINT_STOP: /* the whole process, until it is continued or killed from outside */
        dprintf(STDERR_FILENO, "leat: stopped at %s\n", name);
        pthread_kill(pthread_self(), SIGSTOP);
        return 0;
    case FAILPOINT_EXIT: _exit(70);
    case FAILPOINT_SLEEP: {
        struct timespec rest = {rule->argument / 1000, (long)(rule->argument % 1000) * 1000000};
        nanosleep(&rest, NULL);
        return 0;
    }
    default: return rule->argument;
    }
}

static const struct {
    const char *name;
    int value;
} errno_names[] = {{"EINVAL", EINVAL}, {"EIO", EIO},       {"ENOSPC", ENOSPC},
                   {"EACCES", EACCES}, {"ENOENT", ENOENT}, {"EROFS", EROFS}};

/* Parses a number from 0 to 1,000,000. */
static bool parse_count(struct str text, int64_t *value)
{
    return literal_int(text, value) && *value >= 0 && *value <= 1000000;
}

static bool parse_action(struct str text, struct failpoint_rule *rule)
{
    if (str_is(text, "kill")) {
        rule->action = FAILPOINT_KILL;
        return true;
    }
    if (str_is(text, "stop")) {
        rule->action = FAILPOINT_STOP;
        return true;
    }
    if (str_is(text, "exit")) {
        rule->action = FAILPOINT_EXIT;
        return true;
    }
    if (text.length > 6 && memcmp(text.data, "error:", 6) == 0) {
        rule->action = FAILPOINT_ERROR;
        for (size_t i = 0; i < ARRAY_COUNT(errno_names); i++)
            if (str_is((struct str){text.data + 6, text.length - 6}, errno_names[i].name))
                rule->argument = errno_names[i].value;
        return rule->argument != 0;
    }
    int64_t milliseconds;
    if (text.length > 6 && memcmp(text.data, "sleep:", 6) == 0 &&
        parse_count((struct str){text.data + 6, text.length - 6}, &milliseconds)) {
        rule->action = FAILPOINT_SLEEP;
        rule->argument = (int)milliseconds;
        return true;
    }
    return false;
}

/* Parses one "name=action[@passage]". */
static bool parse_rule(struct str text, struct diag_list *diags)
{
    const char *equals = memchr(text.data, '=', text.length);
    size_t index = ARRAY_COUNT(names);
    if (equals != NULL)
        for (index = 0; index < ARRAY_COUNT(names); index++)
            if (str_is((struct str){text.data, (size_t)(equals - text.data)}, names[index]))
                break;
    if (index == ARRAY_COUNT(names)) {
        struct diag *d = diag_error(diags, DIAG_BAD_ENVIRONMENT, (struct span){0},
                                    "LEAT_FAILPOINTS: `%.*s` is not a failpoint", STR_ARGS(text));
        diag_hint(diags, d, "for example LEAT_FAILPOINTS=\"ckpt.pre_rename=kill@3\"");
        return false;
    }
    struct failpoint_rule *rule = &rules[index];
    struct str action = {equals + 1, (size_t)(text.data + text.length - equals - 1)};
    const char *at = memchr(action.data, '@', action.length);
    int64_t passage = 0;
    bool is_good = true;
    if (at != NULL) {
        is_good = parse_count((struct str){at + 1, (size_t)(action.data + action.length - at - 1)}, &passage);
        action.length = (size_t)(at - action.data);
    }
    rule->at = (unsigned)passage;
    if (!is_good || !parse_action(action, rule)) {
        struct diag *d = diag_error(diags, DIAG_BAD_ENVIRONMENT, (struct span){0},
                                    "LEAT_FAILPOINTS: `%.*s` has no valid action", STR_ARGS(text));
        diag_hint(
            diags, d,
            "actions are kill, stop, exit, error:ENOSPC and sleep:20; add @3 to act at the third passage "
            "only");
        return false;
    }
    return true;
}

/* Reads a number from the environment variable `name`; leaves *value alone if the variable is not set. false
 * + diagnostic: not a number from least to most. */
static bool parse_knob(const char *name, int64_t least, int64_t most, int64_t *value, struct diag_list *diags)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0' ||
        (literal_int(str_from(text), value) && *value >= least && *value <= most))
        return true;
    *value = 0;
    struct diag *d = diag_error(diags, DIAG_BAD_ENVIRONMENT, (struct span){0},
                                "%s: `%s` is not a valid number", name, text);
    diag_hint(diags, d, "give a number from %lld to %lld, for example %s=%lld", (long long)least,
              (long long)most, name, (long long)least + 6);
    return false;
}

uint32_t test_cut(uint32_t usual)
{
    return cut_records > 0 && cut_records < usual ? (uint32_t)cut_records : usual;
}

int64_t test_state(int64_t usual)
{
    return state_bytes > 0 && state_bytes < usual ? state_bytes : usual;
}

int64_t test_store_delay(int64_t usual)
{
    return store_delay_ms > 0 ? store_delay_ms * 1000 : usual;
}

uint64_t test_placement(void)
{
    return (uint64_t)placement_seed;
}

bool failpoints_init(struct diag_list *diags)
{
    bool is_good = parse_knob("LEAT_TEST_CUT", 1, BATCH_ROWS, &cut_records, diags) &&
                   parse_knob("LEAT_TEST_STATE", 256, 1 << 30, &state_bytes, diags) &&
                   parse_knob("LEAT_TEST_PLACEMENT", 1, 1 << 30, &placement_seed, diags) &&
                   parse_knob("LEAT_TEST_STORE_DELAY", 1, 1 << 30, &store_delay_ms, diags);
    const char *text = getenv("LEAT_FAILPOINTS");
    if (text == NULL || *text == '\0')
        return is_good;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        is_good &= parse_rule((struct str){text, length}, diags);
        text += length + (text[length] == ',');
    }
    atomic_store(&is_active, is_good);
    return is_good;
}
