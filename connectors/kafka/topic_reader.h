/* Reads records of topics one by one, from an offset to the end of the log, for commands. One thread at a
 * time. Private to connectors/kafka and the commands. */
#ifndef LEAT_CONNECTORS_KAFKA_TOPIC_READER_H
#define LEAT_CONNECTORS_KAFKA_TOPIC_READER_H

#include "connectors/kafka/client.h"
#include "connectors/kafka/recording.h"
#include "connectors/kafka/start.h"

#include <signal.h>

struct topic_reader;
/* Returns NULL after a diagnostic. */
struct topic_reader *topic_reader_new(const struct kafka_client *client, int64_t patience_us,
                                      const volatile sig_atomic_t *stop, struct diag_list *diags);
void topic_reader_free(struct topic_reader *reader); /* NULL is allowed */

/* Finds a topic's partitions and their ranges, in the arena. Returns their count; 0 after a diagnostic. */
uint32_t topic_reader_partitions(struct topic_reader *reader, struct str topic, struct arena *arena,
                                 struct kafka_range **ranges);
/* Begins to read at the offset. topic: copied. Returns false after a diagnostic. */
LEAT_CHECKED bool topic_reader_seek(struct topic_reader *reader, const char *topic, int32_t partition,
                                    int64_t offset);
/* Reads the next committed record; its bytes are valid until the next call. RECORDED_END: the log ends here,
 * the offset is gone, or `stop` is set. RECORDED_ERROR: a diagnostic was added. */
enum recorded_status topic_reader_next(struct topic_reader *reader, struct recorded *record);
/* Reads the record at that offset; RECORDED_END: it is gone. */
enum recorded_status topic_reader_get(struct topic_reader *reader, const char *topic, int32_t partition,
                                      int64_t offset, struct recorded *record);

#endif
