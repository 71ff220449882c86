#include "formats/account.h"

void account_between(struct byte_account *account, const struct format_kind *format, const char *data,
                     size_t bytes)
{
    for (size_t i = 0; i < bytes && !format->is_blocks; i++)
        leat_assert(format->has_lines && (data[i] == '\n' || data[i] == '\r'));
    account->between += (int64_t)bytes;
}

void account_batch(struct byte_account *account, const struct format_kind *format, const char *data,
                   size_t used, const struct raw_record *records, uint32_t count)
{
    size_t at = 0, whole = 0, ends = 0; /* ends: records that one `\n` separates from the record before */
    if (format->is_blocks) {
        account->records += (int64_t)used;
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        leat_assert(records[i].offset >= at && records[i].offset <= used);
        size_t gap = records[i].offset - at;
        if (likely(gap == 1 && data[at] == '\n' && format->has_lines))
            ends++;
        else
            account_between(account, format, data + at, gap);
        whole += records[i].length;
        at = (size_t)records[i].offset + records[i].length;
    }
    leat_assert(at <= used);
    account_between(account, format, data + at, used - at);
    account->between += (int64_t)ends;
    account->records += (int64_t)whole;
}

void account_check(const struct byte_account *account, int64_t bytes)
{
    leat_assert(account->before + account->records + account->between + account->dropped == bytes);
}
