/* Lists of keys by window, so that closing a window costs in proportion to its keys, not to the table's.
 *
 * A key stands in the list of the first window that is not due yet and has rows of the key; when that window
 * is due, the pass over its list puts the key into a later list. The lists only save time and are no state:
 * they are not in checkpoints, and are given up if they exceed their budget. Windows below `from` have no
 * lists; a scan of the table finds their keys, in the same order. No output depends on them. Keys whose groups leave the instance
 * stay in the lists: who takes a list leaves them out. */
#ifndef LEAT_OPERATORS_WINDOW_WINDOW_KEYS_H
#define LEAT_OPERATORS_WINDOW_WINDOW_KEYS_H

#include "core/key.h"

struct window_key {
    uint64_t hash;
    struct key key;
};

struct window_key_run {
    struct window_key *items;
    uint32_t count, capacity;
    bool is_sorted;
};

/* carried: keys added by the pass over another list, in order. fresh: keys added by rows. */
struct window_key_list {
    int64_t window;
    struct window_key_run carried, fresh;
};

struct window_keys {
    struct window_key_list *lists; /* by rising window */
    uint32_t count, capacity;
    struct window_key_run merged; /* the result of the last window_keys_take */
    int64_t from;                 /* windows below this one have no lists */
    size_t bytes, budget_bytes;
};

void window_keys_init(struct window_keys *keys, size_t budget_bytes);
void window_keys_free(struct window_keys *keys);
/* Gives up the lists; windows from `from` on get new ones. */
void window_keys_forget(struct window_keys *keys, int64_t from);
/* Adds the key to the window's list; does nothing for a window below keys->from. Returns false if the budget
 * is used up: the caller then calls window_keys_forget. */
LEAT_CHECKED bool window_keys_add(struct window_keys *keys, int64_t window, const struct window_key *key,
                                  bool is_carried);
/* Takes the window's list: sets *items to its keys in the order (hash, key), each once, valid until the next
 * call. Returns the number of keys. Drops the lists of earlier windows. */
uint32_t window_keys_take(struct window_keys *keys, int64_t window, struct window_key **items);

/* Compares by (hash, key): < 0 if a comes first, > 0 if b does, 0 if they are equal. */
int window_key_compare(const struct window_key *a, const struct window_key *b);

#endif
