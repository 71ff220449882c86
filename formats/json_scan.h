/* Looks for the end of plain bytes in texts, many bytes at once; private to json_*.c. */
#ifndef LEAT_FORMATS_JSON_SCAN_H
#define LEAT_FORMATS_JSON_SCAN_H

#include "core/base.h"

/* Bytes that one step loads and copies. So up to JSON_SCAN_STEP bytes behind `end` may be loaded, and as many
 * bytes behind the copy overwritten. */
enum { JSON_SCAN_STEP = 64 };

/* skip_plain and copy_plain return how many bytes from `from` on are plain: no quote, no backslash, no
 * control character, no byte from 0x80 on. Where all bytes before `end` are plain, the result is `end - from`
 * or more. copy_plain also copies these bytes to `to`. */
struct json_scan {
    const char *name;
    bool (*is_supported)(void);
    size_t (*skip_plain)(const char *from, const char *end);
    size_t (*copy_plain)(const char *from, const char *end, char *to);
};

/* From the widest to SSE2, which every machine supports. */
enum { JSON_SCANS = 3 };
extern const struct json_scan json_scans[JSON_SCANS];
/* The widest that this machine supports. */
const struct json_scan *json_scan_best(void);

#endif
