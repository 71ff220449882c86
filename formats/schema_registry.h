/* A client of a Schema Registry: fetches schemas by their number, over HTTP.
 *
 * Only the configured address is ever asked: no redirects, no proxies of the environment. A request that may
 * succeed later (no answer, a fault of the server) is repeated with growing pauses, for at most `wait`. The
 * answer that there is no such schema is believed when it has come three times, because registries replicate
 * each other. */
#ifndef LEAT_FORMATS_SCHEMA_REGISTRY_H
#define LEAT_FORMATS_SCHEMA_REGISTRY_H

#include "core/diag.h"
#include "core/option.h"

struct schema_registry_options {
    struct str url; /* empty: no registry */
    struct str user, password, ca;
    int64_t timeout_us, wait_us;
};
extern const struct option schema_registry_options[];

enum { REGISTRY_REFERENCES_MAX = 32, REGISTRY_BODY_BYTES_MAX = 4 << 20 };

/* A schema and the schemas that it refers to, each of these before those that refer to it. */
struct registry_schema {
    struct str type; /* AVRO, PROTOBUF, JSON */
    struct str text;
    struct {
        struct str name, text; /* name: in protobuf, the name by which the file is imported */
    } references[REGISTRY_REFERENCES_MAX];
    uint32_t references_count;
};

enum registry_result {
    REGISTRY_FOUND,
    REGISTRY_MISSING, /* the registry says that there is no such schema */
    REGISTRY_FAILED,  /* the registry cannot be asked, or its answer makes no sense */
};

/* Checks the options; false after diagnostics. */
LEAT_CHECKED bool schema_registry_bind(const struct schema_registry_options *options, struct diag_list *diags,
                                       struct span span);

struct schema_registry;

/* `options` must outlive the registry. */
struct schema_registry *schema_registry_open(const struct schema_registry_options *options);
/* Makes the waiting request and all later ones fail. Any thread. */
void schema_registry_stop(struct schema_registry *registry);
/* NULL is allowed. */
void schema_registry_close(struct schema_registry *registry);

/* Waits pause_us microseconds. Returns false at once when schema_registry_stop was called. */
bool schema_registry_rest(struct schema_registry *registry, int64_t pause_us);
/* Asks for the schema `number` and waits for the answer; one thread at a time. The texts of `schema` and *why
 * lie in the arena or are static. *why: the cause where the result is not REGISTRY_FOUND, without secrets. */
enum registry_result schema_registry_fetch(struct schema_registry *registry, uint32_t number,
                                           struct arena *arena, struct registry_schema *schema,
                                           const char **why);

#endif
