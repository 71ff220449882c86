#include "core/glob_meet.h"

#include "core/mem.h"

#include <stdlib.h>

/* An element of a pattern. It matches one byte of `set`; if is_star, any number of bytes of `set`. */
struct token {
    uint64_t set[4]; /* byte b: bit b % 64 of set[b / 64] */
    bool is_star;
};

static void add(struct token *token, unsigned char byte)
{
    token->set[byte / 64] |= UINT64_C(1) << byte % 64;
}

/* Sets token->set to all bytes but `/` and NUL. */
static void add_any(struct token *token)
{
    memset(token->set, 0xff, sizeof(token->set));
    token->set['/' / 64] &= ~(UINT64_C(1) << '/' % 64);
    token->set[0] &= ~UINT64_C(1);
}

/* Reads a class of bytes, `[abc]` or `[!a-z]`, into token->set. at: behind the `[`. Returns the position
 * behind the closing `]`; NULL: there is no closing `]`, so the `[` stands for itself. */
static const char *read_class(const char *at, struct token *token)
{
    struct token inside = {0}, any = {0};
    bool is_negated = *at == '!' || *at == '^';
    const char *begin = at + is_negated;
    for (at = begin; *at != ']' || at == begin; at++) {
        at += *at == '\\' && at[1] != '\0';
        if (*at == '\0')
            return NULL;
        unsigned char first = (unsigned char)*at, last = first;
        if (at[1] == '-' && at[2] != ']' && at[2] != '\0') {
            last = (unsigned char)at[2];
            at += 2;
        }
        for (unsigned c = first; c <= last; c++)
            add(&inside, (unsigned char)c);
    }
    add_any(&any);
    for (int i = 0; i < 4; i++)
        token->set[i] = (is_negated ? ~inside.set[i] : inside.set[i]) & any.set[i];
    return at + 1;
}

/* Splits a pattern into *count elements. Returns them as an array; the caller frees it. */
static struct token *tokens_of(const char *glob, size_t *count)
{
    struct token *tokens = mem_calloc(strlen(glob) + 1, sizeof(*tokens));
    *count = 0;
    while (*glob != '\0') {
        struct token *token = &tokens[(*count)++];
        const char *behind = *glob == '[' ? read_class(glob + 1, token) : NULL;
        if (behind != NULL) {
            glob = behind;
            continue;
        }
        if (*glob == '*' || *glob == '?') {
            add_any(token);
            token->is_star = *glob == '*';
        } else {
            glob += *glob == '\\' && glob[1] != '\0';
            add(token, (unsigned char)*glob);
        }
        glob++;
    }
    return tokens;
}

static bool sets_meet(const struct token *a, const struct token *b)
{
    return ((a->set[0] & b->set[0]) | (a->set[1] & b->set[1]) | (a->set[2] & b->set[2]) |
            (a->set[3] & b->set[3])) != 0;
}

bool globs_meet(const char *a, const char *b)
{
    size_t as, bs;
    struct token *x = tokens_of(a, &as), *y = tokens_of(b, &bs);
    /* can[i * (bs + 1) + j]: whether some text matches both the elements i, i + 1 ... of pattern a and the
     * elements j, j + 1 ... of pattern b. */
    bool *can = mem_calloc((as + 1) * (bs + 1), sizeof(*can));
    for (size_t i = as + 1; i-- > 0;)
        for (size_t j = bs + 1; j-- > 0;) {
            bool *at = &can[i * (bs + 1) + j];
            bool has_x = i < as, has_y = j < bs;
            *at = !has_x && !has_y;
            if (has_x && x[i].is_star)
                *at |= at[bs + 1]; /* the star matches no more bytes: element i + 1 of a is next */
            if (has_y && y[j].is_star)
                *at |= at[1];
            if (has_x && has_y && sets_meet(&x[i], &y[j])) {
                /* Both elements match a byte that they have in common. A star can match more bytes after it;
                 * any other element is used up. Two stars lead back to the same i and j: skipped. */
                bool stays_x = x[i].is_star, stays_y = y[j].is_star;
                if (!(stays_x && stays_y))
                    *at |= at[(stays_x ? 0 : bs + 1) + (stays_y ? 0 : 1)];
            }
        }
    bool meet = can[0];
    free(can);
    free(x);
    free(y);
    return meet;
}
