/* The wire format of Protocol Buffers, written and read by libprotobuf: the tests compare leat's
 * decoder with it. */
#ifndef LEAT_TESTS_UNIT_FORMATS_PROTOBUF_REFERENCE_H
#define LEAT_TESTS_UNIT_FORMATS_PROTOBUF_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a random message M of the .proto text to `out`; returns its length in bytes. draw:
 * returns random numbers. */
size_t protobuf_reference_write(const char *proto, uint64_t (*draw)(void *argument), void *argument,
                                char *out, size_t room);
/* Reads a message M and writes it to `out` as text, as harness_exact does, with its fields in the order of
 * `names` (payload_cases.h). Returns false if libprotobuf finds it bad. */
bool protobuf_reference_read(const char *proto, const char *data, size_t bytes, const char *const *names,
                             char *out, size_t room);
/* Writes the .proto text and the files of google/protobuf that it imports as a FileDescriptorSet to `out`;
 * returns its length in bytes. */
size_t protobuf_reference_set(const char *proto, char *out, size_t room);

#ifdef __cplusplus
}
#endif

#endif
