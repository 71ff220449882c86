/* Walks through a long text, line by line and column by column. Not by strcspn, strchr and strtoll: under ASan
 * (strict_string_checks) each call of these reads the text to its end, and a walk takes the square of its length. */
#ifndef LEAT_TESTS_UNIT_SUPPORT_SCAN_H
#define LEAT_TESTS_UNIT_SUPPORT_SCAN_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The bytes before the first that is one of `stops` (one or two), or before the end: strcspn. */
static inline size_t scan_until(const char *text, const char *stops)
{
    size_t n = 0;
    while (text[n] != '\0' && text[n] != stops[0] && text[n] != stops[1])
        n++;
    return n;
}

/* What follows the first `c`, which must be there: strchr(text, c) + 1. */
static inline const char *scan_after(const char *text, char c)
{
    while (*text != c)
        text++;
    return text + 1;
}

/* The integer at the begin of a text, and where it ends (NULL: nobody asks), as strtoll in base 10 has them. */
static inline long long scan_number(const char *text, const char **end)
{
    char digits[32] = "", *behind;
    for (size_t i = 0; i < sizeof(digits) - 1 && text[i] != '\0'; i++)
        digits[i] = text[i];
    long long number = strtoll(digits, &behind, 10);
    if (end != NULL)
        *end = text + (behind - digits);
    return number;
}

#endif
