/* Writes recordings. Private to connectors/kafka. One thread at a time. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORDING_WRITE_H
#define LEAT_CONNECTORS_KAFKA_RECORDING_WRITE_H

#include "connectors/kafka/recording.h"

/* Finds the partition, or adds it, with `first` -1. The result is valid until the next call. */
struct recording_partition *recording_add(struct recording *recording, const char *topic, int32_t id,
                                          struct arena *arena);
void recording_add_span(struct recording_partition *partition, const struct recording_span *span,
                        struct arena *arena);
/* Whether a file or folder of that name in a recording's directory is an order log that a live run writes
 * there (`leat run --record-order DIR/order/`). */
bool recording_is_order_log(const char *name);
/* Replaces the manifest, durably. order_log: its path within the directory; NULL: an existing file with the
 * usual name, if any. Returns 0 or an errno. */
LEAT_CHECKED int recording_save(const struct recording *recording, const char *directory,
                                const char *order_log);

/* Compresses the spans of all partitions; zeroed before use. */
struct recording_packer {
    void *context; /* ZSTD_CCtx */
    struct byte_buffer bytes;
};
void recording_packer_free(struct recording_packer *packer);

/* Writes one partition's spans, one at a time. */
struct recording_writer {
    /* Set by the owner. */
    const char *directory, *topic;
    int32_t id;
    enum recording_format format;
    struct recording_packer *packer;

    bool is_open;
    int fd;
    char *path, *part; /* the final name, and the name until the span is complete */
    struct recording_span span;
    struct byte_buffer raw;
    int64_t raw_bytes; /* of the span, before compression */
    int64_t begin_us;  /* os_monotonic_us() of its first record */
};

/* Appends a record; the first record opens a span that begins at offset `first`. Returns 0 or an errno; after
 * an error the span is useless: call recording_writer_close. */
LEAT_CHECKED int recording_writer_put(struct recording_writer *writer, int64_t first,
                                      const struct recorded *record);
/* Completes the span up to offset `next`: makes it durable under its final name. span: its entry for the
 * manifest, in the arena. Returns 0 or an errno. */
LEAT_CHECKED int recording_writer_finish(struct recording_writer *writer, int64_t next,
                                         struct recording_span *span, struct arena *arena);
/* Removes an unfinished span. Accepts a zeroed writer. */
void recording_writer_close(struct recording_writer *writer);

/* Makes the directory, locks it (until *lock_fd is closed) and reads the recording in it. Returns false after
 * a diagnostic: another process records into it (E0605), or other files are in it (E0606). */
LEAT_CHECKED bool recording_begin(const char *directory, struct recording *recording, int *lock_fd,
                                  struct arena *arena, struct diag_list *diags);
/* Adds a diagnostic about the directory. Returns false. */
bool recording_refuse(const char *directory, enum diag_code code, const char *what, const char *hint,
                      struct diag_list *diags);

/* Removes files of spans in the topic's folder that the manifest does not name: an earlier process left
 * them. */
void recording_sweep(const struct recording *recording, const char *directory, const char *topic);

#endif
