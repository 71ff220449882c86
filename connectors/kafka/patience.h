/* How long a start waits for brokers, and what it prints meanwhile. Private to connectors/kafka and to
 * commands that use brokers. One thread at a time. */
#ifndef LEAT_CONNECTORS_KAFKA_PATIENCE_H
#define LEAT_CONNECTORS_KAFKA_PATIENCE_H

#include "core/base.h"

#include <signal.h>

struct kafka_errors;

#define KAFKA_PATIENCE "60s"

struct kafka_patience {
    int64_t deadline_us, say_us;       /* by os_monotonic_us(); say_us INT64_MAX: prints nothing */
    const volatile sig_atomic_t *stop; /* not 0: the user wants the wait to end; NULL: nobody can */
    const char *what;                  /* "source" or "sink"; NULL: the command itself waits */
    struct str name;                   /* the source's or sink's */
    /* Of waits that go on at once for one sink: os_monotonic_us() when one of them last printed. NULL: alone. */
    _Atomic int64_t *said_us;
    char waits_for[160]; /* what brokers are to do; empty: anything */
};

/* Begins a wait. Prints what it waits for after a second, and then every 15 seconds. */
struct kafka_patience kafka_patience_begin(int64_t patience_us, const volatile sig_atomic_t *stop,
                                           const char *what, struct str name);
/* The same without printing. */
struct kafka_patience kafka_patience_silent(int64_t patience_us);
/* Sets what brokers are to do, for what the wait prints. patience NULL: nobody waits aloud. */
void kafka_patience_waits_for(struct kafka_patience *patience, const char *format, ...) LEAT_PRINTF(2, 3);
/* Whether one of several that would say the same has said it in the last `window_us`; if not, the caller says it.
 * said_us NULL: the caller is alone. Any thread. */
bool kafka_patience_is_said(_Atomic int64_t *said_us, int64_t window_us);
/* Whether to try again. False: the time is over, the user wants the wait to end, or waiting cannot help. */
bool kafka_patience_lasts(struct kafka_patience *patience, struct kafka_errors *errors);
/* Whether the user wants the wait to end, which is not an error. */
bool kafka_patience_is_stopped(const struct kafka_patience *patience);

#endif
