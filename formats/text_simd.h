/* What formats/ uses of C++, with a C interface: simdjson, <charconv>. Any thread; no exception comes out. */
#ifndef LEAT_FORMATS_TEXT_SIMD_H
#define LEAT_FORMATS_TEXT_SIMD_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the bytes are well-formed UTF-8: no surrogates, no overlong forms. */
bool text_is_utf8(const char *data, size_t length);
/* The double nearest to a decimal number whose grammar has been checked. Returns false where the number is
 * too large for a double; one that is too small becomes 0. */
bool text_to_double(const char *data, size_t length, double *value);
/* The shortest digits that read back as the same finite double; at most 32 bytes, not terminated. */
size_t text_from_double(double value, char *out);

#ifdef __cplusplus
}
#endif

#endif
