/* JSON read by simdjson, slowly and strictly: the tests compare leat's decoder with it. */
#ifndef LEAT_TESTS_UNIT_FORMATS_JSON_REFERENCE_H
#define LEAT_TESTS_UNIT_FORMATS_JSON_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum reference_verdict { REFERENCE_GOOD, REFERENCE_BAD, REFERENCE_UNSURE };

/* Reads one record of the first `fields` columns of "i int, f float, s text, b bool, t ms, l [int], e [{x
 * int, y text}]" and writes its values as text: `i=5 f=0x1.8p+1 s='6162 b=1 t=- l=[1,-] e=[{5,'61}]`.
 * REFERENCE_UNSURE: only simdjson's DOM refuses the record, for a number beyond 64 bits or beyond a double in
 * a field that is no column. */
enum reference_verdict reference_read(const char *record, size_t length, size_t fields, char *out,
                                      size_t out_bytes);

#ifdef __cplusplus
}
#endif

#endif
