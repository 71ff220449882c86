/* An account of the bytes of a file. The reader that cuts records from bytes adds up the bytes that it gives
 * out and that it drops, and compares the sum with the bytes read when the file ends: a record that was lost,
 * torn or given twice is a bug of ours, which stops the program before the results count. One thread at a
 * time. */
#ifndef LEAT_FORMATS_ACCOUNT_H
#define LEAT_FORMATS_ACCOUNT_H

#include "core/connector.h"

/* Numbers of bytes. */
struct byte_account {
    int64_t before;  /* the header, and bytes read before the account began */
    int64_t records; /* bytes of records; of blocks, for a block format */
    int64_t between; /* line ends, empty lines, end marks */
    int64_t dropped; /* the rest of records that were too long */
};

/* Adds a batch: the records that `split` cut from the first `used` bytes of `data`. Asserts that only line
 * ends stand before, between and behind the records. records: NULL for a block format. */
void account_batch(struct byte_account *account, const struct format_kind *format, const char *data,
                   size_t used, const struct raw_record *records, uint32_t count);
/* Adds bytes that hold no record: empty lines, an end mark. */
void account_between(struct byte_account *account, const struct format_kind *format, const char *data,
                     size_t bytes);
/* Asserts that the account adds up to `bytes`, the bytes of a file that was read to its end without error. */
void account_check(const struct byte_account *account, int64_t bytes);

#endif
