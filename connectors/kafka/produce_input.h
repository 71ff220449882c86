/* Inputs of `leat produce`: recordings and plain files; dead letters are in produce_letters.h. Private to
 * connectors/kafka and the command. */
#ifndef LEAT_CONNECTORS_KAFKA_PRODUCE_INPUT_H
#define LEAT_CONNECTORS_KAFKA_PRODUCE_INPUT_H

#include "connectors/kafka/produce.h"

#include "core/option.h"

/* A recorded topic: its partitions merged by the brokers' times, each in its order, as a replay merges them.
 * The recording must outlive the input. is_by_key: keys choose the partitions anew. */
void produce_recording(struct produce_input *input, const struct recording *recording, bool is_by_key,
                       struct diag_list *diags);

/* Plain files, as the source `file` reads them: one partition after the other in the given order; each record
 * (line, object) is a payload as it is. format: json, csv or msgpack; length 0: by the files' suffixes. key:
 * column with the record's key; length 0: no keys; a null or missing value: no key. time: column that says
 * when the record was made, or length 0; a text such as 2026-01-31T12:00:00Z, or a number with time_per_s
 * units per second. has_header: csv: the first line names the columns and is no record. Returns false after a
 * diagnostic. */
struct produce_files_options {
    struct texts paths;
    struct str format, key, time;
    int64_t time_per_s;
    char delimiter;
    bool has_header;
};
LEAT_CHECKED bool produce_files(struct produce_input *input, const struct produce_files_options *options,
                                struct arena *arena, struct diag_list *diags);

/* Finds the value of a record's column, as text in the arena or the record; data NULL: null or missing.
 * header: csv's first line. Returns NULL, or why there is no value. */
const char *produce_column(struct str format, struct str record, struct str header, char delimiter,
                           struct str column, struct arena *arena, struct str *value);

#endif
