/* simdjson On-Demand, reading the same fields of the same bytes: the reference for the JSON decoder. */
#ifndef LEAT_BENCH_JSON_JSON_PEER_H
#define LEAT_BENCH_JSON_JSON_PEER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum peer_type { PEER_INT, PEER_FLOAT, PEER_TEXT };

struct peer_field {
    const char *name;
    enum peer_type type;
};

struct peer_record {
    uint32_t offset, length;
};

/* Reads every field of every record into plain arrays; returns a checksum, or 0 if a record failed. 64 bytes
 * behind the last record must be readable. */
uint64_t peer_read(const char *data, const struct peer_record *records, size_t count,
                   const struct peer_field *fields, size_t fields_count);
/* peer_read for records of several kinds: the first field of each record is a text; the other fields are read
 * only if that text is `kind`. */
uint64_t peer_read_kind(const char *data, const struct peer_record *records, size_t count,
                        const struct peer_field *fields, size_t fields_count, const char *kind);
const char *peer_implementation(void);

#ifdef __cplusplus
}
#endif

#endif
