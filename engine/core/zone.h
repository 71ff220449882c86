/* Time zones: wall clocks, from the system's tzdata (TZif files, RFC 8536). Any thread.
 *
 * Instants are microseconds since 1970, UTC. A wall clock's time is microseconds, too, as if the time that
 * the clock shows were UTC. A wall clock does not only run forward: when summer time begins it skips an hour,
 * when summer time ends it shows an hour twice. */
#ifndef LEAT_CORE_ZONE_H
#define LEAT_CORE_ZONE_H

#include "core/arena.h"

#define ZONE_DIRECTORY "/usr/share/zoneinfo"

struct zone;

enum zone_status {
    ZONE_GOOD,
    ZONE_UNKNOWN, /* no file has that name, or the name is malformed */
    ZONE_DAMAGED, /* the file is not a valid TZif file */
    ZONE_NO_DATA, /* the machine has no tzdata */
};

/* Loads a zone by name ("Europe/Berlin") into the arena, with its changes up to the year 2400. *zone is NULL
 * unless the result is ZONE_GOOD. */
enum zone_status zone_load(struct arena *arena, struct str name, const struct zone **zone);
/* The name of the zone that is spelt most similarly, in the arena; NULL if none is near enough. */
const char *zone_nearest(struct arena *arena, struct str name);
/* Parses the bytes of a TZif file; NULL: damaged. */
const struct zone *zone_parse(struct arena *arena, struct str bytes);

/* The wall clock's time at the instant `time`. */
int64_t zone_wall(const struct zone *zone, int64_t time);
/* The first instant at which the wall clock shows `wall` or later: the first of two instants for a time that
 * the clock shows twice, the end of the gap for a time that it skips. Never decreases as `wall` increases. */
int64_t zone_instant(const struct zone *zone, int64_t wall);

#endif
