/* Where the bytes of a file went. Whoever cuts records from bytes adds up what is given out and what is
 * dropped, and compares the sum with the bytes read when the file ends: a record that is lost, torn or given
 * twice on the way is a bug of ours, which stops the program before its results count. One thread at a time.
 */
#ifndef LEAT_FORMATS_ACCOUNT_H
#define LEAT_FORMATS_ACCOUNT_H

#include "core/connector.h"

struct byte_account {
    int64_t before;  /* the header; what was read before the account began */
    int64_t records; /* of a block format its blocks */
    int64_t between; /* line ends, empty lines, end marks */
    int64_t dropped; /* the rest of records that are too long */
};

/* A batch: what `split` cut from the first `used` bytes of `data`. Between two records, before the first, and
 * behind the last there may be line ends, and nothing else. records: NULL of a block format. */
void account_batch(struct byte_account *account, const struct format_kind *format, const char *data,
                   size_t used, const struct raw_record *records, uint32_t count);
/* Bytes that hold no record: empty lines, an end mark. */
void account_between(struct byte_account *account, const struct format_kind *format, const char *data,
                     size_t bytes);
/* The file has ended well, `bytes` were read of it. */
void account_check(const struct byte_account *account, int64_t bytes);

#endif
