#include "connectors/kafka/topics.h"

#include "core/mem.h"

#include <stdlib.h>

enum { NAME_MAX_BYTES = 249, NAMES_TOLD = 10 };

static const struct span no_span = {0, 0};

static bool is_pattern(struct str spec)
{
    return spec.length > 0 && spec.data[0] == '^';
}

static bool is_name(struct str spec)
{
    if (spec.length == 0 || spec.length > NAME_MAX_BYTES || str_is(spec, ".") || str_is(spec, ".."))
        return false;
    for (size_t i = 0; i < spec.length; i++) {
        char c = spec.data[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_letter && c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

static bool check_pattern(struct str spec, struct span span, struct diag_list *diags)
{
    regex_t pattern;
    char *text = mem_str(spec), reason[256];
    int error = strlen(text) < spec.length ? REG_BADPAT : regcomp(&pattern, text, REG_EXTENDED | REG_NOSUB);
    free(text);
    if (error == 0) {
        regfree(&pattern);
        return true;
    }
    regerror(error, NULL, reason, sizeof(reason));
    struct diag *d = diag_error(diags, DIAG_BAD_REGEX, span, "the pattern `%.*s` of topics does not compile",
                                STR_ARGS(spec));
    diag_cause(diags, d, "%s", reason);
    return false;
}

bool kafka_topics_check(struct texts specs, struct span span, struct diag_list *diags)
{
    bool is_good = specs.count > 0;
    if (!is_good)
        diag_error(diags, DIAG_OPTION_MISSING, span, "`topic` names no topic");
    for (uint32_t i = 0; i < specs.count; i++) {
        struct str spec = specs.items[i];
        if (is_pattern(spec)) {
            is_good &= check_pattern(spec, span, diags);
        } else if (!is_name(spec)) {
            struct diag *d =
                diag_error(diags, DIAG_OUT_OF_RANGE, span, "no topic can be called `%.*s`", STR_ARGS(spec));
            diag_hint(diags, d,
                      "a topic's name has letters, digits, `.`, `_` and `-`; a pattern begins with "
                      "^, as \"^clicks-.*\"");
            is_good = false;
        }
    }
    return is_good;
}

void kafka_topics_open(struct kafka_topics *topics, struct texts specs, struct arena *arena)
{
    *topics = (struct kafka_topics){.specs = specs, .patterns = arena_array(arena, regex_t, specs.count)};
    for (; topics->compiled < specs.count; topics->compiled++) {
        struct str spec = specs.items[topics->compiled];
        if (!is_pattern(spec))
            continue;
        int error = regcomp(&topics->patterns[topics->compiled], arena_strndup(arena, spec.data, spec.length),
                            REG_EXTENDED | REG_NOSUB);
        leat_assert(error == 0); /* `bind` has compiled it successfully */
    }
}

void kafka_topics_close(struct kafka_topics *topics)
{
    for (uint32_t i = 0; i < topics->compiled; i++)
        if (is_pattern(topics->specs.items[i]))
            regfree(&topics->patterns[i]);
    topics->compiled = 0;
}

bool kafka_topics_have_patterns(const struct kafka_topics *topics)
{
    for (uint32_t i = 0; i < topics->specs.count; i++)
        if (is_pattern(topics->specs.items[i]))
            return true;
    return false;
}

bool kafka_topics_match(const struct kafka_topics *topics, const char *name)
{
    for (uint32_t i = 0; i < topics->specs.count; i++)
        if (is_pattern(topics->specs.items[i])
                ? strncmp(name, "__", 2) != 0 && regexec(&topics->patterns[i], name, 0, NULL, 0) == 0
                : str_is(topics->specs.items[i], name))
            return true;
    return false;
}

static const struct rd_kafka_metadata_topic *find(const struct rd_kafka_metadata *metadata, struct str name)
{
    for (int i = 0; i < metadata->topic_cnt; i++)
        if (str_is(name, metadata->topics[i].topic))
            return &metadata->topics[i];
    return NULL;
}

static void tell_unknown(const struct rd_kafka_metadata *metadata, struct str name, struct arena *arena,
                         struct diag_list *diags)
{
    const char **names = arena_array(arena, const char *, (size_t)metadata->topic_cnt);
    size_t count = 0;
    for (int i = 0; i < metadata->topic_cnt; i++)
        if (strncmp(metadata->topics[i].topic, "__", 2) != 0)
            names[count++] = metadata->topics[i].topic;
    struct diag *d =
        diag_error(diags, DIAG_NO_TOPIC, no_span, "the cluster has no topic `%.*s`", STR_ARGS(name));
    const char *near = diag_nearest(name, names, count);
    if (near != NULL) {
        diag_hint(diags, d, "did you mean `%s`?", near);
        return;
    }
    const char *all = count == 0 ? "none that this user may see" : names[0];
    for (size_t i = 1; i < MIN(count, NAMES_TOLD); i++)
        all = arena_printf(arena, "%s, %s", all, names[i]);
    diag_hint(diags, d, "its topics are: %s%s", all, count > NAMES_TOLD ? ", ..." : "");
}

static bool check_names(const struct kafka_topics *topics, const struct rd_kafka_metadata *metadata,
                        struct arena *arena, struct diag_list *diags)
{
    bool is_good = true;
    for (uint32_t i = 0; i < topics->specs.count; i++) {
        struct str spec = topics->specs.items[i];
        if (is_pattern(spec))
            continue;
        const struct rd_kafka_metadata_topic *topic = find(metadata, spec);
        if (topic == NULL || topic->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
            tell_unknown(metadata, spec, arena, diags);
            is_good = false;
        } else if (topic->err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED) {
            struct diag *d = diag_error(diags, DIAG_KAFKA_FAILED, no_span,
                                        "cannot read the topic `%.*s`: not authorized", STR_ARGS(spec));
            diag_hint(diags, d, "the user of `security` needs the rights Read and Describe on the topic");
            is_good = false;
        }
    }
    return is_good;
}

static int compare_places(const void *left, const void *right)
{
    const struct kafka_place *a = left, *b = right;
    int order = strcmp(a->topic, b->topic);
    return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

struct kafka_place *kafka_topics_find(const struct kafka_topics *topics,
                                      const struct rd_kafka_metadata *metadata, uint32_t *count,
                                      struct arena *arena, struct diag_list *diags)
{
    size_t total = 0;
    *count = 0;
    if (!check_names(topics, metadata, arena, diags))
        return NULL;
    for (int i = 0; i < metadata->topic_cnt; i++)
        if (kafka_topics_match(topics, metadata->topics[i].topic))
            total += (size_t)metadata->topics[i].partition_cnt;
    if (total == 0 || total > UINT32_MAX) {
        struct diag *d =
            diag_error(diags, DIAG_NO_TOPIC, no_span, "the cluster has no topic that matches `topic`");
        diag_hint(diags, d,
                  "a pattern must match at least one topic when the job begins; more may come later");
        return NULL;
    }
    struct kafka_place *places = arena_array(arena, struct kafka_place, total);
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const struct rd_kafka_metadata_topic *topic = &metadata->topics[i];
        const char *name =
            kafka_topics_match(topics, topic->topic) ? arena_strdup(arena, topic->topic) : NULL;
        for (int k = 0; name != NULL && k < topic->partition_cnt; k++)
            places[(*count)++] = (struct kafka_place){name, topic->partitions[k].id};
    }
    qsort(places, *count, sizeof(*places), compare_places);
    return places;
}
