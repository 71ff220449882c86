/* Arbitrary bytes as the positions of a checkpoint (engine/run/base/positions.h): describing them, and asking
 * for their micro-batch number and what had ended, must not crash; the texts in them may be any
 * bytes. Half of the inputs get the right version. Key times that can be loaded are the same once they are
 * saved and loaded. */
#include "fuzz.h"
#include "run/base/positions.h"
#include "run/run.h"
#include "run/sequencer/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    uint8_t how = fuzz_byte(&input);
    struct str bytes = fuzz_take(&input, size);
    uint64_t version = 0;
    /* Sets the version that leat writes today; it is found by trying, so that it is not repeated here. */
    if (how & 1 && bytes.length >= 24)
        for (version = 1; version < 64 && positions_micro_batch(bytes) == UINT64_MAX; version++)
            memcpy((char *)(uintptr_t)bytes.data + 8, &version, sizeof(version));
    struct byte_buffer out = {0}, saved = {0};
    run_describe_positions(bytes, &out);
    must(out.length > 0, "positions are described");
    (void)positions_state(bytes);
    struct key_times keys = {0};
    if (how & 2 && key_times_load(&keys, bytes)) {
        struct key_times again = {0};
        key_times_save(&keys, &saved);
        must(key_times_load(&again, (struct str){saved.data, saved.length}), "what is saved loads");
        must(again.count == keys.count &&
                 key_times_oldest(&again, TIME_MIN) == key_times_oldest(&keys, TIME_MIN),
             "what is saved says the same");
        key_times_free(&again);
    }
    key_times_free(&keys);
    buffer_free(&out);
    buffer_free(&saved);
    free((char *)(uintptr_t)bytes.data);
    return 0;
}
