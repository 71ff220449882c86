/* How long a start waits for brokers, and what it says meanwhile. Private to connectors/kafka, and for
 * commands that go to brokers. One thread at a time. */
#ifndef LEAT_CONNECTORS_KAFKA_PATIENCE_H
#define LEAT_CONNECTORS_KAFKA_PATIENCE_H

#include "core/base.h"

#include <signal.h>

struct kafka_errors;

#define KAFKA_PATIENCE "60s"

struct kafka_patience {
    int64_t deadline_us, say_us;       /* os_monotonic_us(); say_us INT64_MAX: nothing is said */
    const volatile sig_atomic_t *stop; /* not 0: the user wants it to end; NULL: nobody can */
    const char *what;                  /* "source" or "sink"; NULL: it is the command itself that waits */
    struct str name;                   /* of that */
};

/* From now on; it says what it waits for after a moment, and then now and then. */
struct kafka_patience kafka_patience_begin(int64_t patience_us, const volatile sig_atomic_t *stop,
                                           const char *what, struct str name);
/* From now on, in silence. */
struct kafka_patience kafka_patience_silent(int64_t patience_us);
/* Whether to try again. False: time is up, the user wants it to end, or waiting does not mend it. */
bool kafka_patience_lasts(struct kafka_patience *patience, struct kafka_errors *errors);
/* Whether the user wants it to end: that is no error. */
bool kafka_patience_is_stopped(const struct kafka_patience *patience);

#endif
