#include "learners/train/kv_cache.h"

#include "core/base.h"
#include "core/mem.h"
#include "kernels/attention_pages.h"
#include "kernels/num.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    NONE = UINT32_MAX,
    GROUP_MAX = 64, /* most windows of a pass */
    LINE = 64,      /* pages are whole cache lines */
    HUGE_PAGE = 1 << 21,
};

/* A user's rows. Entries form a list from the user who was asked for last to the one asked for least recently. */
struct entry {
    uint64_t key, start;
    uint64_t call, group; /* in which the user was asked for last */
    size_t request;       /* of `call` */
    uint32_t rows;        /* kept, from the window's start on */
    uint32_t pages, page; /* how many, and the first; the others follow by kv_cache.next */
    uint32_t newer, older;
    uint32_t chain; /* next entry in its bucket; of a free entry: next free one */
};

/* The windows of the pass in preparation. */
struct group {
    uint64_t number;
    uint32_t windows, rows;
    uint32_t offsets[GROUP_MAX + 1];
    struct net_kept kept[GROUP_MAX];
    size_t requests[GROUP_MAX];
    uint32_t *seconds; /* [events_max] of the rows in the pass */
    void **pages;      /* [GROUP_MAX][pages of the longest window] */
};

struct kv_cache {
    bool is_bf16;
    size_t elements, second_bytes,
        page_bytes; /* of a page: elements, bytes before its rows' seconds, all bytes */
    uint32_t window_max, events_max, window_pages;
    unsigned char *pool; /* [pages_max][page_bytes] */
    uint32_t pages_max, pages_begun, free,
        free_all;          /* begun: ever used; free: first of the list, and how many */
    uint32_t *next;        /* [pages_max] of a page in its entry, or of a free page */
    struct entry *entries; /* [pages_max]: an entry has at least one page */
    uint32_t entries_begun, entries_free, newest, oldest;
    uint32_t *buckets; /* [bucket_mask + 1] first entry */
    uint32_t bucket_mask;
    uint64_t call;
    struct group group;
    struct kv_cache_counts counts;
};

/* --- Memory --- */

/* Bytes of the budget that a page costs: itself, its place in the list, an entry, and up to two buckets. */
static size_t page_cost(const struct kv_cache *c)
{
    return c->page_bytes + sizeof(*c->next) + sizeof(*c->entries) + 2 * sizeof(*c->buckets);
}

static void take_pages(struct kv_cache *c, size_t budget_bytes)
{
    size_t pages = MIN(budget_bytes / page_cost(c), (size_t)1 << 31);
    size_t bytes = (pages * c->page_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, buckets = 1;
    while (buckets < pages)
        buckets *= 2;
    c->pages_max = (uint32_t)pages;
    c->bucket_mask = (uint32_t)(buckets - 1);
    c->buckets = mem_alloc(buckets * sizeof(*c->buckets));
    if (pages == 0)
        return;
    c->pool = mem_aligned(HUGE_PAGE, bytes);
    (void)madvise(c->pool, bytes,
                  MADV_HUGEPAGE); /* a kernel without huge pages refuses, which does no harm */
    c->next = mem_alloc(pages * sizeof(*c->next));
    c->entries = mem_alloc(pages * sizeof(*c->entries));
}

struct kv_cache *kv_cache_new(const struct kv_cache_options *options, const struct net *net)
{
    const struct net_options *o = &net->options;
    leat_assert(o->window_max > 0 && net->device->api == NULL && net->events_max >= o->window_max);
    for (uint32_t i = 0; i < net->layers_count; i++)
        leat_assert(net->layers[i].kind != &net_attention || net->layers[i].is_causal);
    struct kv_cache *c = mem_calloc(1, sizeof(*c));
    size_t element = options->is_bf16 ? sizeof(uint16_t) : sizeof(float);
    c->is_bf16 = options->is_bf16;
    c->elements = net->kept_elements;
    c->second_bytes = c->elements * element;
    c->page_bytes = (c->second_bytes + ATTENTION_PAGE * sizeof(uint32_t) + LINE - 1) / LINE * LINE;
    c->window_max = o->window_max, c->events_max = net->events_max;
    c->window_pages = (o->window_max + ATTENTION_PAGE - 1) / ATTENTION_PAGE;
    take_pages(c, options->budget_bytes);
    c->group.seconds = mem_alloc(c->events_max * sizeof(*c->group.seconds));
    c->group.pages = mem_alloc((size_t)GROUP_MAX * c->window_pages * sizeof(*c->group.pages));
    kv_cache_clear(c);
    return c;
}

void kv_cache_free(struct kv_cache *c)
{
    if (c == NULL)
        return;
    free(c->pool), free(c->next), free(c->entries), free(c->buckets);
    free(c->group.seconds), free(c->group.pages);
    free(c);
}

void kv_cache_clear(struct kv_cache *c)
{
    memset(c->buckets, 0xff, ((size_t)c->bucket_mask + 1) * sizeof(*c->buckets)); /* NONE */
    c->pages_begun = c->free_all = c->entries_begun = 0;
    c->free = c->entries_free = c->newest = c->oldest = NONE;
    c->counts.users = 0;
}

struct kv_cache_counts kv_cache_count(const struct kv_cache *c)
{
    struct kv_cache_counts counts = c->counts;
    counts.bytes = (size_t)(c->pages_begun - c->free_all) * page_cost(c);
    return counts;
}

static unsigned char *page_at(const struct kv_cache *c, uint32_t page)
{
    return c->pool + (size_t)page * c->page_bytes;
}

static uint32_t *seconds_of(const struct kv_cache *c, uint32_t page)
{
    return (uint32_t *)(void *)(page_at(c, page) + c->second_bytes);
}

static uint32_t pages_left(const struct kv_cache *c)
{
    return c->pages_max - c->pages_begun + c->free_all;
}

static uint32_t take_page(struct kv_cache *c)
{
    uint32_t page = c->free;
    if (page == NONE)
        return c->pages_begun++;
    c->free = c->next[page];
    c->free_all--;
    return page;
}

static void give_pages(struct kv_cache *c, struct entry *e)
{
    while (e->pages > 0) {
        uint32_t page = e->page;
        e->page = c->next[page];
        c->next[page] = c->free;
        c->free = page;
        c->free_all++;
        e->pages--;
    }
    e->rows = 0;
}

/* --- Entries --- */

static uint32_t *bucket_of(const struct kv_cache *c, uint64_t key)
{
    return &c->buckets[num_mix(key) & c->bucket_mask];
}

static struct entry *find(const struct kv_cache *c, uint64_t key)
{
    uint32_t at = *bucket_of(c, key);
    while (at != NONE && c->entries[at].key != key)
        at = c->entries[at].chain;
    return at != NONE ? &c->entries[at] : NULL;
}

static void unlink_entry(struct kv_cache *c, const struct entry *e)
{
    *(e->newer != NONE ? &c->entries[e->newer].older : &c->newest) = e->older;
    *(e->older != NONE ? &c->entries[e->older].newer : &c->oldest) = e->newer;
}

static void link_newest(struct kv_cache *c, struct entry *e)
{
    uint32_t at = (uint32_t)(e - c->entries);
    e->newer = NONE, e->older = c->newest;
    *(c->newest != NONE ? &c->entries[c->newest].newer : &c->oldest) = at;
    c->newest = at;
}

static void remove_entry(struct kv_cache *c, struct entry *e)
{
    uint32_t at = (uint32_t)(e - c->entries), *chain = bucket_of(c, e->key);
    give_pages(c, e);
    unlink_entry(c, e);
    while (*chain != at)
        chain = &c->entries[*chain].chain;
    *chain = e->chain;
    e->chain = c->entries_free;
    c->entries_free = at;
    c->counts.users--;
}

/* Removes users, least recent first, until `pages` pages are left; false: those of the pass in preparation must
 * stay, and are too many. */
static bool make_room(struct kv_cache *c, uint32_t pages)
{
    while (pages_left(c) < pages) {
        struct entry *oldest = c->oldest != NONE ? &c->entries[c->oldest] : NULL;
        if (oldest == NULL || oldest->group == c->group.number)
            return false;
        remove_entry(c, oldest);
        c->counts.evicted++;
    }
    return true;
}

/* A new entry with its first page, which is left. */
static struct entry *add_entry(struct kv_cache *c, uint64_t key)
{
    uint32_t at = c->entries_free, *bucket = bucket_of(c, key);
    if (at == NONE)
        at = c->entries_begun++;
    else
        c->entries_free = c->entries[at].chain;
    leat_assert(at < c->pages_max);
    struct entry *e = &c->entries[at];
    *e = (struct entry){.key = key, .chain = *bucket, .pages = 1, .page = take_page(c)};
    c->next[e->page] = NONE;
    *bucket = at;
    link_newest(c, e);
    c->counts.users++;
    return e;
}

/* --- Rows of an entry --- */

/* Whether the times of the first `rows` rows are those of the request. */
static bool has_seconds(const struct kv_cache *c, const struct entry *e, const uint32_t *seconds,
                        uint32_t rows)
{
    uint32_t page = e->page;
    for (uint32_t r = 0; r < rows; r += ATTENTION_PAGE, page = c->next[page]) {
        uint32_t some = MIN(rows - r, (uint32_t)ATTENTION_PAGE);
        if (memcmp(seconds_of(c, page), seconds + r, some * sizeof(*seconds)) != 0)
            return false;
    }
    return true;
}

/* Gives an entry the pages of `rows` rows, which are left, and their addresses. */
static void extend(struct kv_cache *c, struct entry *e, const struct kv_request *q, void **pages)
{
    uint32_t page = NONE, *link = &e->page;
    for (uint32_t r = 0, number = 0; r < q->length; r += ATTENTION_PAGE, number++) {
        if (number == e->pages) {
            *link = take_page(c);
            c->next[*link] = NONE;
            e->pages++;
        }
        page = *link, link = &c->next[page];
        pages[number] = page_at(c, page);
        memcpy(seconds_of(c, page), q->seconds + r,
               MIN(q->length - r, (uint32_t)ATTENTION_PAGE) * sizeof(*q->seconds));
    }
}

/* The entry of a request, with pages for the whole window, at the front of the list; NULL: it gets none. */
static struct entry *entry_for(struct kv_cache *c, const struct kv_request *q)
{
    struct entry *e = find(c, q->key);
    uint32_t pages = (q->length + ATTENTION_PAGE - 1) / ATTENTION_PAGE;
    if (pages > c->pages_max || (e != NULL && e->call == c->call))
        return NULL;
    if (e == NULL) {
        if (!make_room(c, pages))
            return NULL;
        e = add_entry(c, q->key);
        e->start = q->start;
    } else {
        unlink_entry(c, e);
        link_newest(c, e);
        if (e->start != q->start || !has_seconds(c, e, q->seconds, MIN(e->rows, q->length))) {
            c->counts.turned++;
            give_pages(c, e);
            e->start = q->start;
        }
    }
    e->call = c->call, e->group = c->group.number;
    if (pages > e->pages && !make_room(c, pages - e->pages)) {
        remove_entry(c, e);
        return NULL;
    }
    return e;
}

/* --- Passes --- */

/* Runs the pass in preparation, and begins the next one. */
static void run_group(struct kv_cache *c, struct net *net, float *out)
{
    struct group *g = &c->group;
    const struct net_matrix *of = net->output;
    net->windows = (struct net_windows){.offsets = g->offsets,
                                        .count = g->windows,
                                        .seconds = g->seconds,
                                        .kept = g->kept,
                                        .kept_is_bf16 = c->is_bf16};
    net_forward(net, g->rows);
    net->windows = (struct net_windows){0};
    for (uint32_t w = 0; w < g->windows; w++)
        memcpy(out + g->requests[w] * of->columns, of->values + (size_t)(g->offsets[w + 1] - 1) * of->stride,
               of->columns * sizeof(*out));
    g->windows = g->rows = 0;
    g->number++;
}

static bool is_same(const struct kv_request *a, const struct kv_request *b)
{
    return a->start == b->start && a->length == b->length &&
           memcmp(a->seconds, b->seconds, a->length * sizeof(*a->seconds)) == 0;
}

/* Whether an earlier request of the call has the same window; *request: its number. */
static bool is_repeated(const struct kv_cache *c, const struct kv_request *requests, size_t i,
                        size_t *request)
{
    const struct entry *e = c->pages_max > 0 ? find(c, requests[i].key) : NULL;
    if (e == NULL || e->call != c->call || !is_same(&requests[e->request], &requests[i]))
        return false;
    *request = e->request;
    return true;
}

/* Adds the window of request i to the pass in preparation; first runs it, if the new rows have no place there.
 * Returns how many rows of the window are kept. */
static uint32_t add_window(struct kv_cache *c, struct net *net, const struct kv_request *requests, size_t i,
                           float *out)
{
    struct group *g = &c->group;
    const struct kv_request *q = &requests[i];
    struct entry *e = c->pages_max > 0 ? entry_for(c, q) : NULL;
    uint32_t kept = e != NULL ? MIN(e->rows, q->length - 1) : 0;
    if (g->windows == GROUP_MAX || g->rows + q->length - kept > c->events_max)
        run_group(c, net, out);
    void **pages = g->pages + (size_t)g->windows * c->window_pages;
    g->kept[g->windows] =
        (struct net_kept){.pages = e != NULL ? pages : NULL, .rows = kept, .seconds = q->seconds};
    if (e != NULL) {
        extend(c, e, q, pages);
        e->group = g->number, e->request = i;
        e->rows = MAX(e->rows, q->length);
    }
    c->counts.hits += kept > 0, c->counts.misses += kept == 0, c->counts.refused += e == NULL;
    c->counts.rows_kept += kept, c->counts.rows_encoded += q->length - kept;
    return kept;
}

void kv_cache_encode(struct kv_cache *c, struct net *net, const struct kv_request *requests, size_t n,
                     kv_cache_fill *fill, void *argument, float *out)
{
    struct group *g = &c->group;
    const struct net_matrix *in = net->input;
    leat_assert(net->kept_elements == c->elements && net->options.window_max == c->window_max);
    leat_assert(net->events_max == c->events_max && net->first == 0);
    c->call++;
    for (size_t i = 0; i < n; i++) {
        const struct kv_request *q = &requests[i];
        size_t same;
        leat_assert(q->length > 0 && q->length <= c->window_max);
        if (is_repeated(c, requests, i, &same)) {
            if (find(c, q->key)->group == g->number)
                run_group(c, net, out);
            memcpy(out + i * net->output->columns, out + same * net->output->columns,
                   net->output->columns * sizeof(*out));
            c->counts.repeated++;
            continue;
        }
        uint32_t kept = add_window(c, net, requests, i, out), rows = q->length - kept;
        fill(argument, i, kept, q->length, in->values + (size_t)g->rows * in->stride, in->stride);
        memcpy(g->seconds + g->rows, q->seconds + kept, rows * sizeof(*g->seconds));
        g->requests[g->windows] = i;
        g->rows += rows;
        g->offsets[++g->windows] = g->rows;
    }
    if (g->windows > 0)
        run_group(c, net, out);
}
