/* Dead letters as input of `leat produce`: sends again the records that the letters contain or refer to.
 * Private to connectors/kafka and the command. */
#ifndef LEAT_CONNECTORS_KAFKA_PRODUCE_LETTERS_H
#define LEAT_CONNECTORS_KAFKA_PRODUCE_LETTERS_H

#include "connectors/kafka/produce_input.h"
#include "connectors/kafka/topic_reader.h"

/* One row of dead_letters, parsed from JSON (engine/run/lanes/dead.c). */
struct letter {
    struct str topic; /* length 0: the record came from no topic */
    int64_t partition, offset, time_ms;
    struct str key, headers, raw; /* raw.data NULL: the letter does not contain the record's bytes */
};
/* Parses a letter; its texts are in the arena or in `json`. Returns NULL, or why it is not a letter. */
const char *letter_read(struct str json, struct arena *arena, struct letter *letter);

struct letters_options {
    const char *topic;           /* send only records from this topic; NULL: all */
    bool keeps_partition;        /* send records to the partitions they came from */
    bool skips_lost;             /* count lost records in *lost instead of failing */
    struct topic_reader *reader; /* reads the records that letters do not contain */
    uint64_t *lost;
};

/* Makes an input that sends the letters' records. letters: the input that gives the letters and their
 * numbers; closed with the new input. */
void produce_letters(struct produce_input *input, const struct produce_input *letters,
                     const struct letters_options *options, struct diag_list *diags);
/* Makes an input that reads letters from one partition of a topic: offsets [first, end). reader: stays the
 * caller's. Returns false after a diagnostic. */
LEAT_CHECKED bool produce_topic(struct produce_input *input, struct topic_reader *reader, const char *topic,
                                int32_t partition, int64_t first, int64_t end);
/* Lists the topics that the letters' records came from ("": no topic), in the arena; reads `letters` to its
 * end. Returns false after a diagnostic. */
LEAT_CHECKED bool letters_topics(struct produce_input *letters, struct arena *arena, struct texts *topics,
                                 struct diag_list *diags);

#endif
