/* The wire format as libprotobuf writes and reads it: what the decoder is held against. */
#ifndef LEAT_TESTS_FORMATS_PROTOBUF_REFERENCE_H
#define LEAT_TESTS_FORMATS_PROTOBUF_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A random message M of the .proto text into `out`; returns its bytes. draw: random numbers. */
size_t protobuf_reference_write(const char *proto, uint64_t (*draw)(void *argument), void *argument,
                                char *out, size_t room);
/* The message as text, as harness_exact writes it, with its fields in the order of `names`
 * (payload_cases.h). False: libprotobuf calls it bad. */
bool protobuf_reference_read(const char *proto, const char *data, size_t bytes, const char *const *names,
                             char *out, size_t room);
/* The .proto text, and what it imports of google/protobuf, as a FileDescriptorSet; returns its bytes. */
size_t protobuf_reference_set(const char *proto, char *out, size_t room);

#ifdef __cplusplus
}
#endif

#endif
