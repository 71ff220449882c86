/* The numbers of items (learners/items/numbers.h) as a part. */
#include "learners/items/numbers.h"
#include "learners/stored/stored.h"

static void save(void *of, uint32_t since, struct byte_buffer *out)
{
    items_numbers_save(of, since, out);
}

static const char *load(void *of, const void *data, size_t bytes)
{
    return items_numbers_load(of, data, bytes);
}

static const char *load_reader(void *of, const void *data, size_t bytes)
{
    return items_numbers_follow(of, data, bytes);
}

static void set_epoch(void *of, uint32_t epoch)
{
    items_numbers_set_epoch(of, epoch);
}

struct stored_part stored_numbers(const char *name, struct items_numbers *numbers)
{
    return (struct stored_part){.name = name,
                                .of = numbers,
                                .save = save,
                                .load = load,
                                .is_journal = true,
                                .is_for_readers = true,
                                .load_reader = load_reader,
                                .set_epoch = set_epoch};
}
