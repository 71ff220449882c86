#include "core/glob_meet.h"

#include "core/mem.h"

#include <stdlib.h>

/* An element of a pattern: a set of bytes that matches one byte, or (is_star) any number of bytes. */
struct token {
    uint64_t set[4];
    bool is_star;
};

static void add(struct token *token, unsigned char byte)
{
    token->set[byte / 64] |= UINT64_C(1) << byte % 64;
}

static void add_any(struct token *token)
{
    memset(token->set, 0xff, sizeof(token->set));
    token->set['/' / 64] &= ~(UINT64_C(1) << '/' % 64);
    token->set[0] &= ~UINT64_C(1);
}

/* Reads `[abc]` or `[!a-z]` from behind the `[`. Returns the place behind the closing bracket; NULL: there is
 * none, so `[` is literal. */
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

/* The pattern's elements; malloc'd. */
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
    /* can[i * (bs + 1) + j]: whether some text matches both a from element i on and b from element j on. */
    bool *can = mem_calloc((as + 1) * (bs + 1), sizeof(*can));
    for (size_t i = as + 1; i-- > 0;)
        for (size_t j = bs + 1; j-- > 0;) {
            bool *at = &can[i * (bs + 1) + j];
            bool has_x = i < as, has_y = j < bs;
            *at = !has_x && !has_y;
            if (has_x && x[i].is_star)
                *at |= at[bs + 1]; /* the star matches nothing more */
            if (has_y && y[j].is_star)
                *at |= at[1];
            if (has_x && has_y && sets_meet(&x[i], &y[j])) {
                /* Both match one byte. A star may match more, so it stays; if both stay, the state
                 * does not change. */
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
