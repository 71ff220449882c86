/*
 * A cache of keys and values, for scoring with sequence models (net.h with window_max): what the last row of a
 * user's window gives. Since the last request the window mostly grew by one token. Of a causal network the keys and
 * values of a token depend on the tokens before it alone, so those of the older tokens are kept, and only the new
 * rows go through the layers (windows.h, net_kept).
 *
 * Bits: an encoding equals that of a pass over the whole window, bit for bit, whatever is kept, evicted, asked for
 * together or asked for before. With is_bf16 keys and values are rounded to bf16 in each attention layer, whether
 * they are kept or not: outputs differ from those without, but depend on the cache as little.
 *
 * What is kept is by the user's key, and holds for one start of the window: when the window has turned, it is encoded
 * anew. The caller promises that a row of the input depends on nothing but the key, the start, the row's place, its
 * time, and the weights, and calls kv_cache_clear when the weights change, those of the items' vectors included. That
 * the times of kept rows are still the same is checked: a user that expired and began anew has others.
 *
 * Memory: pages of ATTENTION_PAGE rows (kernels/attention_pages.h), all of one size, so that nothing fragments;
 * taken once and touched when first used. When no page is free, the user who was asked for least recently goes. That
 * follows from the order of requests alone. A request that gets no pages is encoded without being kept.
 *
 * One thread owns a cache. No call but kv_cache_new and kv_cache_free takes or frees memory.
 */
#ifndef LEAT_LEARNERS_TRAIN_KV_CACHE_H
#define LEAT_LEARNERS_TRAIN_KV_CACHE_H

#include "learners/train/net.h"

struct kv_cache_options {
    size_t
        budget_bytes; /* of pages and their entries; 0: nothing is kept. At most UINT32_MAX pages are used. */
    bool is_bf16;
};

struct kv_request {
    uint64_t key;            /* the user's */
    uint64_t start;          /* of the window: the number of its first event among all the user's events */
    uint32_t length;         /* 1..window_max: rows of the window */
    const uint32_t *seconds; /* [length] the tokens' times */
};

/* Sets the rows from..to - 1 of the window of request `request`; rows: where the first of them goes, `stride` floats
 * from a row to the next. */
typedef void kv_cache_fill(void *argument, size_t request, uint32_t from, uint32_t to, float *rows,
                           size_t stride);

/* Since kv_cache_new, but for bytes. Requests = hits + misses + repeated; the rows of the windows of hits and misses
 * = rows_encoded + rows_kept. */
struct kv_cache_counts {
    uint64_t hits;     /* requests for which older rows were kept */
    uint64_t misses;   /* encoded whole, */
    uint64_t refused;  /* of these without being kept: no pages, or another window of the key */
    uint64_t repeated; /* the same window again in one call */
    uint64_t rows_encoded, rows_kept; /* rows that went through the layers; rows that did not have to */
    uint64_t evicted;                 /* users who had to go for others */
    uint64_t turned; /* users whose kept rows were of no use: another start, or other times */
    uint64_t users;  /* at present */
    size_t bytes;    /* of the pages in use and their entries, at present */
};

struct kv_cache;

/* For nets of the shape of `net`: on the CPU, all attention causal, events_max at least window_max. The caller frees
 * the result with kv_cache_free, which takes NULL. */
struct kv_cache *kv_cache_new(const struct kv_cache_options *options, const struct net *net);
void kv_cache_free(struct kv_cache *cache);

/* Forgets all users: the weights have changed. Takes a time of the number of pages (4 bytes each), not of their size. */
void kv_cache_clear(struct kv_cache *cache);

/*
 * out[i][columns of the output] = the output of the last row of request i's window, without dropout. A key may come
 * more than once, and so may a window. Overwrites the values of all matrices of the net and net->windows; net->first
 * is 0.
 */
void kv_cache_encode(struct kv_cache *cache, struct net *net, const struct kv_request *requests, size_t n,
                     kv_cache_fill *fill, void *argument, float *out);

struct kv_cache_counts kv_cache_count(const struct kv_cache *cache);

#endif
