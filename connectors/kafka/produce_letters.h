/* Dead letters as input of `leat produce`: the records that they hold, or name, once more. Private to
 * connectors/kafka and the command. */
#ifndef LEAT_CONNECTORS_KAFKA_PRODUCE_LETTERS_H
#define LEAT_CONNECTORS_KAFKA_PRODUCE_LETTERS_H

#include "connectors/kafka/produce_input.h"
#include "connectors/kafka/topic_reader.h"

/* One row of dead_letters, as JSON (engine/run/dead.c). */
struct letter {
    struct str topic; /* length 0: it came from no topic */
    int64_t partition, offset, time_ms;
    struct str key, headers, raw; /* raw.data NULL: its bytes are not in the letter */
};
/* NULL, or why it is none; what it holds lies in the arena or in the text. */
const char *letter_read(struct str json, struct arena *arena, struct letter *letter);

struct letters_options {
    const char *topic;           /* those from this topic alone; NULL: all */
    bool keeps_partition;        /* they go where they came from */
    bool skips_lost;             /* those whose bytes are nowhere any more are counted, not an error */
    struct topic_reader *reader; /* for those that do not have their bytes */
    uint64_t *lost;
};

/* letters: gives their bytes and numbers; closed with the input. */
void produce_letters(struct produce_input *input, const struct produce_input *letters,
                     const struct letters_options *options, struct diag_list *diags);
/* The letters of one partition of a topic, up to `end`. reader: stays the caller's. */
LEAT_CHECKED bool produce_topic(struct produce_input *input, struct topic_reader *reader, const char *topic,
                                int32_t partition, int64_t first, int64_t end);
/* The topics that letters come from, "" for those from none, in the arena; reads `letters` to its end. False
 * after a diagnostic. */
LEAT_CHECKED bool letters_topics(struct produce_input *letters, struct arena *arena, struct texts *topics,
                                 struct diag_list *diags);

#endif
