/* Arbitrary bytes as a TZif file: parsing must not crash, and a file that can be parsed is a time zone: the
 * wall clock is at most two days away from UTC; the first instant at which the clock shows a time is not
 * after the instant from which that time came; and instants rise with the wall clock. */
#include "core/zone.h"
#include "fuzz.h"

enum { INSTANTS = 48 };

/* Instant number i, at random from 1870 to 2370: among known changes of the clock, and beyond them,
 * where rules hold. */
static int64_t instant_of(uint32_t i, uint64_t salt)
{
    uint64_t random = (salt + i) * UINT64_C(0x9e3779b97f4a7c15);
    random ^= random >> 29;
    int64_t year = (int64_t)(random % 500) - 100; /* 1870 to 2370 */
    return year * 365 * US_PER_DAY + (int64_t)(random >> 20 & 0xffffff) * US_PER_SECOND;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {.block_bytes = 64 << 10};
    struct fuzz_input input = {data, data + size};
    struct str bytes = fuzz_take(&input, size);
    const struct zone *zone = zone_parse(&arena, bytes);
    int64_t wall_before = TIME_MIN, instant_before = TIME_MIN;
    for (uint32_t i = 0; zone != NULL && i < INSTANTS; i++) {
        int64_t time = instant_of(i, size), wall = zone_wall(zone, time);
        must(wall >= time - 2 * US_PER_DAY && wall <= time + 2 * US_PER_DAY, "a wall clock shows the day");
        int64_t again = zone_instant(zone, wall);
        must(again <= time, "the first instant that shows it is no later one");
        must(zone_wall(zone, again) >= wall, "the instant shows it, or what comes behind a gap");
        if (wall >= wall_before)
            must(i == 0 || again >= instant_before || wall_before == TIME_MIN, "instants do not fall");
        else
            must(again <= instant_before, "instants do not rise as the clock falls");
        wall_before = wall;
        instant_before = again;
    }
    free((char *)(uintptr_t)bytes.data);
    arena_free(&arena);
    return 0;
}
