/* What `leat produce` sends: recordings, plain files, dead letters. Private to connectors/kafka and the
 * command. */
#ifndef LEAT_CONNECTORS_KAFKA_PRODUCE_INPUT_H
#define LEAT_CONNECTORS_KAFKA_PRODUCE_INPUT_H

#include "connectors/kafka/produce.h"

#include "core/option.h"

/* A recorded topic: its partitions merged by the brokers' times, each in its order, as a replay merges them.
 * The recording must stay. is_by_key: keys choose the partitions anew. */
void produce_recording(struct produce_input *input, const struct recording *recording, bool is_by_key,
                       struct diag_list *diags);

/* Plain files, as the source `file` reads them: one partition after the other in the order given; each record
 * (line, object) is a payload as it stands. format: json, csv, msgpack, or length 0: by their suffixes. key:
 * the column that is the record's key, or length 0; a null or missing one: no key. time: the column that says
 * when it was made, or length 0: text as 2026-01-31T12:00:00Z, or a number in parts of a second, time_per_s
 * of them. has_header: csv, the first line names the columns and is none. False after a diagnostic. */
struct produce_files_options {
    struct texts paths;
    struct str format, key, time;
    int64_t time_per_s;
    char delimiter;
    bool has_header;
};
LEAT_CHECKED bool produce_files(struct produce_input *input, const struct produce_files_options *options,
                                struct arena *arena, struct diag_list *diags);

/* The value of a column of a record as text, in the arena; data NULL: null, or there is none. header: csv's
 * first line. NULL, or why there can be no value. */
const char *produce_column(struct str format, struct str record, struct str header, char delimiter,
                           struct str column, struct arena *arena, struct str *value);

#endif
