/* Waits of threads for each other: barriers of a block and collectives of a warp. */
#include "tests/cuda_on_host/machine.h"

#include "tests/cuda_on_host/sanitizers.h"

const char *waits_name(const model_thread *thread)
{
    static const char *const barriers[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and",
                                           "__syncthreads_count"};
    static const char *const collectives[] = {"__syncwarp",
                                              "__shfl_sync",
                                              "__shfl_up_sync",
                                              "__shfl_down_sync",
                                              "__shfl_xor_sync",
                                              "__ballot_sync",
                                              "__any_sync",
                                              "__all_sync",
                                              "__match_any_sync",
                                              "__match_all_sync",
                                              "__reduce_add_sync",
                                              "__reduce_min_sync",
                                              "__reduce_max_sync",
                                              "__reduce_min_sync",
                                              "__reduce_max_sync",
                                              "__reduce_and_sync",
                                              "__reduce_or_sync",
                                              "__reduce_xor_sync",
                                              "mma"};
    return thread->state == MODEL_AT_BARRIER ? barriers[thread->kind] : collectives[thread->kind];
}

static bool same_site(model_site a, model_site b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

/* --- Barriers --- */
/* A thread of the block other than `not_this` whose state is `state`; NULL: none. */
static const model_thread *thread_with(const model_block *block, model_state state,
                                       const model_thread *not_this)
{
    for (unsigned n = 0; n < block->size; n++) {
        if (&block->threads[n] != not_this && block->threads[n].state == state) {
            return &block->threads[n];
        }
    }
    return NULL;
}

[[noreturn]] static void report_returned(const model_thread *waiting, const model_thread *returned)
{
    model_report(waiting,
                 "barrier not reached by all: waits in %s at %s:%d, but thread (%u,%u,%u) has returned",
                 waits_name(waiting), waiting->site.file, waiting->site.line, returned->index.x,
                 returned->index.y, returned->index.z);
}

static void check_barrier(model_thread *self)
{
    const model_block *block = self->in;
    const model_thread *returned = block->returned > 0 ? thread_with(block, MODEL_RETURNED, self) : NULL;
    if (returned != NULL) {
        report_returned(self, returned);
    }
    const model_thread *other = block->arrived > 0 ? block->first_arrived : NULL;
    if (other != NULL && (other->kind != self->kind || !same_site(other->site, self->site))) {
        model_report(self,
                     "barrier not reached by all: waits in %s at %s:%d, but thread (%u,%u,%u) in %s at %s:%d",
                     waits_name(self), self->site.file, self->site.line, other->index.x, other->index.y,
                     other->index.z, waits_name(other), other->site.file, other->site.line);
    }
}

static void vote(model_block *block, model_barrier_kind kind, int predicate)
{
    if (block->arrived == 0) {
        block->vote = kind == MODEL_SYNCTHREADS_AND;
    }
    switch (kind) {
    case MODEL_SYNCTHREADS_OR: block->vote |= predicate != 0; break;
    case MODEL_SYNCTHREADS_AND: block->vote &= predicate != 0; break;
    case MODEL_SYNCTHREADS_COUNT: block->vote += predicate != 0; break;
    default: break;
    }
}

int model_barrier(model_barrier_kind kind, int predicate, model_site site)
{
    model_thread *self = scheduler_self();
    model_block *block = self->in;
    /* Two are used by turns: no thread can be more than one barrier ahead of another. */
    char *sync = &block->barrier_sync[block->phase % 2];
    self->state = MODEL_AT_BARRIER;
    self->kind = kind;
    self->site = site;
    check_barrier(self);
    tsan_release(sync);
    vote(block, kind, predicate);
    if (block->arrived == 0) {
        block->first_arrived = self;
    }
    if (++block->arrived == block->size) {
        block->arrived = 0;
        block->phase++;
        for (unsigned n = 0; n < block->size; n++) {
            block->threads[n].result = (uint64_t)block->vote;
            scheduler_ready(&block->threads[n]);
        }
    }
    scheduler_give_way();
    tsan_acquire(sync);
    return (int)self->result;
}

/* --- Warp collectives --- */
static unsigned lane_of(const model_thread *thread)
{
    return thread->number % LANES;
}

/* The mask of all lanes of a warp of so many. */
static unsigned whole_warp(unsigned lane_count)
{
    return lane_count == LANES ? ~0U : (1U << lane_count) - 1U;
}

static uint64_t shuffle(const model_thread *lanes, model_thread *self)
{
    const unsigned lane = lane_of(self), width = (unsigned)self->width, first = lane & ~(width - 1);
    unsigned from = lane;
    switch (self->kind) {
    case MODEL_SHFL: from = first + (self->operand & (width - 1)); break;
    case MODEL_SHFL_UP: from = lane - first >= self->operand ? lane - self->operand : lane; break;
    case MODEL_SHFL_DOWN: from = lane - first + self->operand < width ? lane + self->operand : lane; break;
    default: from = (lane ^ self->operand) < first + width ? lane ^ self->operand : lane; break;
    }
    if (!(self->mask >> from & 1)) {
        model_report(self, "%s at %s:%d reads lane %u, which is not in the mask 0x%08x", waits_name(self),
                     self->site.file, self->site.line, from, self->mask);
    }
    return lanes[from].value;
}

static unsigned lanes_with(const model_thread *lanes, unsigned mask, uint64_t value)
{
    unsigned with = 0;
    for (unsigned i = 0; i < LANES; i++) {
        with |= (mask >> i & 1 && lanes[i].value == value ? 1U : 0U) << i;
    }
    return with;
}

static uint64_t reduce(const model_thread *lanes, unsigned mask, int kind)
{
    uint32_t result = 0;
    bool is_first = true;
    for (unsigned i = 0; i < LANES; i++) {
        const uint32_t value = (uint32_t)lanes[i].value;
        if (!(mask >> i & 1)) {
            continue;
        }
        if (is_first) {
            result = value;
            is_first = false;
            continue;
        }
        switch (kind) {
        case MODEL_REDUCE_ADD: result += value; break;
        case MODEL_REDUCE_MIN_SIGNED: result = (int32_t)value < (int32_t)result ? value : result; break;
        case MODEL_REDUCE_MAX_SIGNED: result = (int32_t)value > (int32_t)result ? value : result; break;
        case MODEL_REDUCE_MIN: result = value < result ? value : result; break;
        case MODEL_REDUCE_MAX: result = value > result ? value : result; break;
        case MODEL_REDUCE_AND: result &= value; break;
        case MODEL_REDUCE_OR: result |= value; break;
        default: result ^= value; break;
        }
    }
    return result;
}

static uint64_t collective(const model_thread *lanes, model_thread *self)
{
    const unsigned mask = self->mask;
    switch (self->kind) {
    case MODEL_SYNCWARP: return 0;
    case MODEL_SHFL:
    case MODEL_SHFL_UP:
    case MODEL_SHFL_DOWN:
    case MODEL_SHFL_XOR: return shuffle(lanes, self);
    case MODEL_BALLOT: return lanes_with(lanes, mask, 1);
    case MODEL_ANY: return lanes_with(lanes, mask, 1) != 0;
    case MODEL_ALL: return lanes_with(lanes, mask, 1) == mask;
    case MODEL_MATCH_ANY: return lanes_with(lanes, mask, self->value);
    case MODEL_MATCH_ALL: return lanes_with(lanes, mask, self->value) == mask ? mask : 0;
    case MODEL_MMA: mma_multiply(lanes); return 0;
    default: return reduce(lanes, mask, self->kind);
    }
}

static bool same_call(const model_thread *a, const model_thread *b)
{
    return a->kind == b->kind && a->mask == b->mask && same_site(a->site, b->site);
}

/* Whether all lanes of self's mask have arrived; reports lanes that never will. */
static bool all_came(const model_thread *lanes, unsigned lane_count, const model_thread *self)
{
    const model_site site = self->site;
    bool all = true;
    if (!(self->mask >> lane_of(self) & 1)) {
        model_report(self, "%s at %s:%d: lane %u is not in its own mask 0x%08x", waits_name(self), site.file,
                     site.line, lane_of(self), self->mask);
    }
    for (unsigned i = 0; i < LANES; i++) {
        const model_thread *other = &lanes[i];
        if (!(self->mask >> i & 1) || other == self) {
            continue;
        }
        if (i >= lane_count || other->state == MODEL_RETURNED) {
            model_report(
                self,
                "warp collective not reached by all: waits in %s at %s:%d with mask 0x%08x, but lane %u %s",
                waits_name(self), site.file, site.line, self->mask, i,
                i >= lane_count ? "does not exist" : "has returned");
        }
        const bool is_here = other->state == MODEL_AT_WARP;
        const bool is_same = is_here && same_call(other, self);
        if (is_here && !is_same && other->mask >> lane_of(self) & 1) {
            model_report(
                self,
                "warp collective not reached by all: waits in %s at %s:%d with mask 0x%08x, but lane %u in "
                "%s at %s:%d with mask 0x%08x",
                waits_name(self), site.file, site.line, self->mask, i, waits_name(other), other->site.file,
                other->site.line, other->mask);
        }
        all = all && is_same;
    }
    return all;
}

/* As all_came, by what the warp's first lane keeps of those that wait: mostly all of the mask wait in one call,
 * and one comparison tells; where not, all_came looks at each. */
static bool arrive(model_thread *lanes, unsigned lane_count, const model_thread *self)
{
    const unsigned bit = 1U << lane_of(self), others = self->mask & lanes->waiting & ~bit;
    const bool is_alone = lanes->together == 0;
    const bool is_same = is_alone || same_call(&lanes[__builtin_ctz(lanes->together)], self);
    const bool is_plain = self->mask & bit &&
                          (self->mask & ~(whole_warp(lane_count) & ~lanes->returned)) == 0 &&
                          (others & ~lanes->together) == 0 && (others == 0 || is_same);
    const bool all = is_plain ? (others | bit) == self->mask : all_came(lanes, lane_count, self);
    lanes->waiting |= bit;
    lanes->together |= is_same ? bit : 0;
    return all;
}

static void give_results(model_thread *lanes, model_thread *self)
{
    const bool is_one_for_all =
        (self->kind < MODEL_SHFL || self->kind > MODEL_SHFL_XOR) && self->kind != MODEL_MATCH_ANY;
    const uint64_t of_all = is_one_for_all ? collective(lanes, self) : 0;
    for (unsigned i = 0; i < LANES; i++) {
        if (self->mask >> i & 1) {
            lanes[i].result = is_one_for_all ? of_all : collective(lanes, &lanes[i]);
        }
    }
}

/* Lanes of the mask go on. */
static void leave(model_thread *lanes, unsigned mask)
{
    for (unsigned i = 0; i < LANES; i++) {
        if (mask >> i & 1) {
            scheduler_ready(&lanes[i]);
        }
    }
    lanes->waiting &= ~mask;
    lanes->together &= ~mask;
}

/* __syncwarp for a part of a warp, for TSan: orders what each lane of the mask did before against all of
 * them. Groups may have lanes in common. */
static void order_lanes(model_thread *lanes, unsigned mask)
{
    for (unsigned i = 0; i < LANES; i++) {
        if (mask >> i & 1) {
            tsan_acquire(&lanes[i].warp_sync);
        }
    }
    for (unsigned i = 0; i < LANES; i++) {
        if (mask >> i & 1) {
            tsan_release(&lanes[i].warp_sync);
        }
    }
}

uint64_t model_warp(model_warp_kind kind, unsigned mask, uint64_t value, unsigned operand, int width,
                    model_site site)
{
    model_thread *self = scheduler_self();
    model_block *block = self->in;
    const unsigned first = self->number - lane_of(self);
    const unsigned lane_count = min(block->size - first, (unsigned)LANES);
    model_thread *lanes = &block->threads[first];
    self->state = MODEL_AT_WARP;
    self->kind = kind;
    self->site = site;
    self->mask = mask;
    self->value = value;
    self->operand = operand;
    self->width = width;
    if (width < 1 || width > LANES || (width & (width - 1)) != 0) {
        model_report(self, "%s at %s:%d: width %d is no power of two up to 32", waits_name(self), site.file,
                     site.line, width);
    }
    const bool is_complete = arrive(lanes, lane_count, self);
    const bool is_whole = mask == whole_warp(lane_count);
    /* A whole warp uses two by turns, as barriers do: half the work for TSan. */
    char *sync = is_whole ? &lanes->whole_sync[lanes->whole_phase % 2] : &self->warp_sync;
    if (kind == MODEL_SYNCWARP) {
        tsan_release(sync);
    }
    if (is_complete) {
        if (kind == MODEL_SYNCWARP && is_whole) {
            lanes->whole_phase++;
        } else if (kind == MODEL_SYNCWARP) {
            order_lanes(lanes, mask);
        }
        give_results(lanes, self);
        leave(lanes, mask);
    }
    scheduler_give_way();
    if (kind == MODEL_SYNCWARP) {
        tsan_acquire(sync);
    }
    return self->result;
}

/* --- The end of a thread --- */
void waits_returned(model_thread *thread)
{
    const model_block *block = thread->in;
    const unsigned first = thread->number - lane_of(thread);
    thread->state = MODEL_RETURNED;
    block->threads[first].returned |= 1U << lane_of(thread);
    if (block->arrived > 0) {
        report_returned(thread_with(block, MODEL_AT_BARRIER, thread), thread);
    }
    for (unsigned n = first; block->threads[first].waiting != 0 && n < first + LANES && n < block->size;
         n++) {
        const model_thread *other = &block->threads[n];
        if (other->state == MODEL_AT_WARP && other->mask >> lane_of(thread) & 1) {
            model_report(
                other,
                "warp collective not reached by all: waits in %s at %s:%d with mask 0x%08x, but lane %u has "
                "returned",
                waits_name(other), other->site.file, other->site.line, other->mask, lane_of(thread));
        }
    }
}
