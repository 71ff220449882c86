#include "connectors/kafka/sink_topics.h"

#include "core/log.h"

#include <inttypes.h>
#include <stdio.h>

bool kafka_topic_check(const char *option, struct str topic, struct span span, struct diag_list *diags)
{
    bool is_good =
        topic.length > 0 && topic.length <= TOPIC_NAME_MAX && !str_is(topic, ".") && !str_is(topic, "..");
    for (size_t i = 0; i < topic.length && is_good; i++) {
        char c = topic.data[i];
        is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                  c == '_' || c == '-';
    }
    if (is_good)
        return true;
    diag_hint(diags,
              diag_error(diags, DIAG_OUT_OF_RANGE, span, "`%s`: `%.*s` cannot be a topic", option,
                         (int)MIN(topic.length, 300), topic.data),
              "a topic's name has letters, digits, `.`, `_` and `-`, at most %d of them", TOPIC_NAME_MAX);
    return false;
}

bool sink_cannot_open(struct sink_context *context, const char *why, const char *hint)
{
    struct diag *d = diag_error(context->diags, DIAG_OUTPUT_FAILED, (struct span){0, 0}, "sink `%.*s`: %s",
                                STR_ARGS(context->name), why);
    diag_hint(context->diags, d, "%s", hint);
    return false;
}

bool sink_topic_ensure(struct sink_context *context, struct admin_call *call, const char *topic,
                       const struct kafka_create *create, int32_t *partitions, int64_t *batch_bytes)
{
    *partitions = 0;
    bool is_made = create->partitions > 0 && !context->is_resumed;
    enum admin_answer answer = admin_partitions(call, topic, partitions, batch_bytes);
    if (answer == ADMIN_MISSING && is_made) {
        char retention[32];
        snprintf(retention, sizeof(retention), "%" PRId64, create->retention_us / 1000);
        const struct admin_config config[] = {{create->retention_us > 0 ? "retention.ms" : NULL, retention},
                                              {NULL, NULL}};
        int32_t replication = create->replication > 0 ? (int32_t)create->replication : -1;
        answer = admin_create(call, topic, (int32_t)create->partitions, replication, config);
        if (answer == ADMIN_GOOD)
            log_say(LOG_LEVEL_INFO,
                    "sink `%.*s`: topic `%s` did not exist, and is created with %d partitions",
                    STR_ARGS(context->name), topic, (int)create->partitions);
        if (answer == ADMIN_GOOD) /* brokers that do not know the topic yet tell no limit */
            admin_partitions(call, topic, partitions, batch_bytes);
        *partitions = MAX(*partitions, (int32_t)create->partitions);
    }
    if (answer == ADMIN_GOOD)
        return true;
    if (answer != ADMIN_MISSING)
        return sink_cannot_open(context, call->why, "mend the cause and start again");
    char why[400];
    if (!context->is_resumed) {
        snprintf(why, sizeof(why), "topic `%s` does not exist", topic);
        return sink_cannot_open(context, why,
                                "create the topic, or let leat create it: `create: { partitions: 4 }`");
    }
    /* `create` applies to the first start only: a new topic would hide that the rows sent before are gone. */
    snprintf(
        why, sizeof(why),
        "topic `%s` does not exist any more, and this job continues from a checkpoint: the rows that it had "
        "sent to the topic are gone",
        topic);
    return sink_cannot_open(
        context, why,
        "if this is intended, create the topic again, empty: rows that were not sent yet go there; or start "
        "anew with --fresh, which sends all rows again");
}

/* Gives the progress topic a partition for each shard. */
static bool add_shards(struct sink_context *context, struct admin_call *call, const char *progress_topic,
                       uint32_t shards, int32_t *partitions)
{
    if (admin_add_partitions(call, progress_topic, (int32_t)shards) != ADMIN_GOOD) {
        struct diag *d = diag_error(context->diags, DIAG_OUTPUT_FAILED, (struct span){0, 0},
                                    "sink `%.*s`: progress topic `%s` has %d partitions and needs %u: %s",
                                    STR_ARGS(context->name), progress_topic, *partitions, shards, call->why);
        diag_hint(context->diags, d,
                  "give leat the right Alter on the topic, or the topic %u partitions, one for each shard "
                  "of the sink",
                  shards);
        return false;
    }
    log_say(LOG_LEVEL_INFO,
            "sink `%.*s`: progress topic `%s` had %d partitions, and gets %u, one for each shard",
            STR_ARGS(context->name), progress_topic, *partitions, shards);
    *partitions = (int32_t)shards;
    return true;
}

bool sink_progress_ensure(struct sink_context *context, struct admin_call *call, const char *progress_topic,
                          const char *topic, uint32_t shards, int32_t *partitions)
{
    *partitions = 0;
    enum admin_answer answer = admin_partitions(call, progress_topic, partitions, NULL);
    if (answer == ADMIN_MISSING && !context->is_resumed) {
        answer = admin_create_progress(call, progress_topic, (int32_t)shards);
        *partitions = (int32_t)shards;
    }
    if (answer == ADMIN_GOOD)
        return *partitions >= (int32_t)shards ||
               add_shards(context, call, progress_topic, shards, partitions);
    if (answer != ADMIN_MISSING)
        return sink_cannot_open(context, call->why, "mend the cause and start again");
    struct diag *d =
        diag_error(context->diags, DIAG_RESUME_OR_FRESH, (struct span){0, 0},
                   "progress topic `%s` is gone: it is unknown which rows were sent", progress_topic);
    diag_hint(
        context->diags, d,
        "set `progress_topic` to the topic's present name; or start a new run with --fresh (rows that `%s` "
        "already has are sent again)",
        topic);
    return false;
}
