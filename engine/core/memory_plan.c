#include "core/memory_plan.h"

void memory_plan_add(struct memory_plan *plan, const char *name, uint64_t bytes, bool is_elsewhere)
{
    leat_assert(plan->count < MEMORY_PARTS_MAX);
    if (bytes > 0)
        plan->parts[plan->count++] = (struct memory_part){name, bytes, is_elsewhere};
}

uint64_t memory_plan_bytes(const struct memory_plan *plan, bool is_elsewhere)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plan->count; i++)
        sum += plan->parts[i].is_elsewhere == is_elsewhere ? plan->parts[i].bytes : 0;
    return sum;
}

const char *memory_bytes_text(uint64_t bytes, struct arena *arena)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024.0;
    size_t unit = 0;
    for (; value >= 1000.0 && unit + 1 < ARRAY_COUNT(units); unit++)
        value /= 1024.0;
    return arena_printf(arena, "%.1f %s", value, units[unit]);
}

const char *memory_plan_text(const struct memory_plan *plan, bool is_elsewhere, struct arena *arena)
{
    const char *text = memory_bytes_text(memory_plan_bytes(plan, is_elsewhere), arena), *before = ": ";
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct memory_part *part = &plan->parts[i];
        if (part->is_elsewhere != is_elsewhere)
            continue;
        text =
            arena_printf(arena, "%s%s%s %s", text, before, part->name, memory_bytes_text(part->bytes, arena));
        before = ", ";
    }
    return text;
}
