#include "watched.h"

#include "later.h"
#include "run/base/peers.h"

#include <glob.h>
#include <stdio.h>

extern const struct sink_kind sink_null;

struct watched watched;

size_t count_files(const char *pattern)
{
    glob_t files;
    size_t count = glob(pattern, 0, NULL, &files) == 0 ? files.gl_pathc : 0;
    if (count > 0)
        globfree(&files);
    return count;
}

static bool fence(struct sink_context *context)
{
    watched.fences++;
    watched.knows_next = context->known_next != NULL;
    watched.known_next = watched.knows_next ? context->known_next(context->engine) : 0;
    memcpy(watched.run_id, context->run_id, sizeof(watched.run_id));
    return true;
}

static bool write_rows(struct sink_context *context, const struct batch *batch)
{
    if (!watched.breaks)
        return sink_null.write(context, batch);
    snprintf(context->error, sizeof(context->error), "it is full");
    return false;
}

static bool snapshot(struct sink_context *context, struct snapshot_writer *writer)
{
    if (!peers_is_leader(context->engine) && watched.failed < watched.fails) {
        size_t parts = count_files("many/*/gen-*/ckpt-*/MANIFEST");
        watched.most_parts = MAX(watched.most_parts, parts);
        watched.failed++;
        return false;
    }
    return sink_null.snapshot(context, writer);
}

const struct registry *registry_watched(const struct operator_kind *kind)
{
    enum { SINK_KINDS_MAX = 32 };
    static struct registry registry;
    static struct sink_kind sink;
    static const struct sink_kind *list[SINK_KINDS_MAX];
    uint32_t count = 0;
    registry = *registry_with(kind);
    for (const struct sink_kind *const *known = registry.sinks; known[count] != NULL; count++) {
        leat_assert(count < SINK_KINDS_MAX - 2);
        list[count] = known[count];
    }
    sink = sink_null;
    sink.name = "watched";
    sink.fence = fence;
    sink.write = write_rows;
    sink.snapshot = snapshot;
    list[count] = &sink;
    registry.sinks = list;
    return &registry;
}
