#include "connectors/kafka/patience.h"

#include "connectors/kafka/client.h"

#include "core/log.h"
#include "core/os.h"

#include <stdarg.h>
#include <stdio.h>

enum { SAY_FIRST_US = 1000000, SAY_EVERY_US = 15000000 };

struct kafka_patience kafka_patience_begin(int64_t patience_us, const volatile sig_atomic_t *stop,
                                           const char *what, struct str name)
{
    int64_t now = os_monotonic_us();
    return (struct kafka_patience){.deadline_us = time_add(now, patience_us),
                                   .say_us = now + SAY_FIRST_US,
                                   .stop = stop,
                                   .what = what,
                                   .name = name};
}

struct kafka_patience kafka_patience_silent(int64_t patience_us)
{
    return (struct kafka_patience){.deadline_us = time_add(os_monotonic_us(), patience_us),
                                   .say_us = INT64_MAX};
}

bool kafka_patience_is_stopped(const struct kafka_patience *patience)
{
    return patience->stop != NULL && *patience->stop != 0;
}

void kafka_patience_waits_for(struct kafka_patience *patience, const char *format, ...)
{
    va_list arguments;
    if (patience == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(patience->waits_for, sizeof(patience->waits_for), format, arguments);
    va_end(arguments);
}

static void say(const struct kafka_patience *patience, struct kafka_errors *errors, int64_t left_us)
{
    char why[400], who[128] = "", what[sizeof(patience->waits_for) + 8] = "";
    if (kafka_errors_why(errors, why, sizeof(why)) == 0)
        snprintf(why, sizeof(why), "no broker has answered yet");
    if (patience->what != NULL)
        snprintf(who, sizeof(who), "%s `%.*s`: ", patience->what, STR_ARGS(patience->name));
    if (patience->waits_for[0] != '\0')
        snprintf(what, sizeof(what), " (%s)", patience->waits_for);
    log_say(LOG_LEVEL_WARNING, "%s%s; waiting for brokers%s, %lld s more at most (`patience`)", who, why,
            what, (long long)((left_us + US_PER_SECOND - 1) / US_PER_SECOND));
}

bool kafka_patience_is_said(_Atomic int64_t *said_us, int64_t window_us)
{
    int64_t now = os_monotonic_us();
    if (said_us == NULL)
        return false;
    int64_t last = atomic_load(said_us);
    return (last != 0 && now - last < window_us) || !atomic_compare_exchange_strong(said_us, &last, now);
}

bool kafka_patience_lasts(struct kafka_patience *patience, struct kafka_errors *errors)
{
    int64_t now = os_monotonic_us();
    if (kafka_patience_is_stopped(patience) || now >= patience->deadline_us || kafka_errors_are_final(errors))
        return false;
    if (now >= patience->say_us) {
        if (!kafka_patience_is_said(patience->said_us, SAY_EVERY_US / 2))
            say(patience, errors, patience->deadline_us - now);
        patience->say_us = now + SAY_EVERY_US;
    }
    return true;
}
