#include "run/head.h"

#include "core/mem.h"
#include "run/base/words.h"

#include <stdlib.h>

static const char title[] = "leat head 1";

struct checkpoint *run_head_open(const struct run_head *head, struct str fingerprint, struct diag_list *diags)
{
    struct checkpoint_joint *joints = mem_calloc(head->count, sizeof(*joints));
    for (uint32_t i = 0; i < head->count; i++) {
        const struct run_head_part *part = &head->parts[(head->leader + i) % head->count];
        joints[i].directory = mem_str(part->directory);
        joints[i].id = part->id;
        memcpy(joints[i].digest, part->digest, sizeof(part->digest));
    }
    struct checkpoint *opened = checkpoint_join(joints, head->count, fingerprint, diags);
    for (uint32_t i = 0; i < head->count; i++)
        free((char *)(uintptr_t)joints[i].directory);
    free(joints);
    return opened;
}

void run_head_encode(const struct run_head *head, struct byte_buffer *out)
{
    size_t begin = out->length;
    uint8_t digest[CHECKPOINT_DIGEST_BYTES];
    words_put_text(out, str_from(title));
    buffer_append(out, head->run.bytes, sizeof(head->run.bytes));
    words_put(out, head->epoch);
    buffer_append(out, head->placement, sizeof(head->placement));
    words_put(out, head->leader);
    words_put(out, head->count);
    for (uint32_t i = 0; i < head->count; i++) {
        const struct run_head_part *part = &head->parts[i];
        words_put(out, part->id.generation);
        words_put(out, part->bytes);
        buffer_append(out, part->digest, sizeof(part->digest));
        words_put_text(out, part->directory);
    }
    checkpoint_digest_of((struct str){out->data + begin, out->length - begin}, digest);
    buffer_append(out, digest, sizeof(digest));
}

/* Takes the digest off the manifest's end. False: it is another one. */
static bool take_digest(struct str *manifest)
{
    uint8_t digest[CHECKPOINT_DIGEST_BYTES];
    if (manifest->length < sizeof(digest))
        return false;
    manifest->length -= sizeof(digest);
    checkpoint_digest_of(*manifest, digest);
    return memcmp(manifest->data + manifest->length, digest, sizeof(digest)) == 0;
}

static void take_bytes(struct words *words, uint8_t *bytes, size_t count)
{
    words->is_short |= words->left.length < count;
    if (words->is_short)
        return;
    memcpy(bytes, words->left.data, count);
    words->left = (struct str){words->left.data + count, words->left.length - count};
}

bool run_head_directory_is_good(struct str path)
{
    return path.length > 0 && path.length < CHECKPOINT_PATH_BYTES / 2 &&
           memchr(path.data, '\0', path.length) == NULL;
}

/* False: the part is not as it must be. */
static bool take_part(struct words *words, struct run_head_part *part)
{
    uint64_t generation = words_take(words);
    part->id.generation = (uint32_t)generation;
    part->bytes = words_take(words);
    take_bytes(words, part->digest, sizeof(part->digest));
    part->directory = words_take_text(words);
    return !words->is_short && generation > 0 && generation <= UINT32_MAX &&
           run_head_directory_is_good(part->directory);
}

bool run_head_decode(struct str manifest, struct run_head *head, const char **why)
{
    *head = (struct run_head){0};
    *why = "its digest is wrong";
    if (!take_digest(&manifest))
        return false;
    struct words words = {.left = manifest};
    *why = "it is of another version of leat";
    if (!str_is(words_take_text(&words), title))
        return false;
    take_bytes(&words, head->run.bytes, sizeof(head->run.bytes));
    head->epoch = words_take(&words);
    take_bytes(&words, head->placement, sizeof(head->placement));
    uint64_t leader = words_take(&words), count = words_take(&words);
    *why = "it has a part that is not as it must be, or too many";
    if (words.is_short || head->epoch == 0 || head->epoch > RUN_EPOCH_MAX || count > RUN_WORKERS_MAX ||
        leader >= count)
        return false;
    head->leader = (uint32_t)leader;
    head->count = (uint32_t)count;
    for (uint32_t i = 0; i < head->count; i++) {
        head->parts[i].worker = i;
        head->parts[i].id.epoch = head->epoch;
        if (!take_part(&words, &head->parts[i]))
            return false;
    }
    *why = "there is more behind its end";
    return words.left.length == 0;
}

static bool describe(struct checkpoint_dir *dir, const char *directory, struct byte_buffer *out,
                     struct diag_list *diags)
{
    struct checkpoint *newest = NULL;
    enum checkpoint_found found = checkpoint_find(dir, &newest, diags);
    if (found == CHECKPOINT_NONE)
        diag_hint(diags,
                  diag_error(diags, DIAG_NO_CHECKPOINT, (struct span){0}, "there is no checkpoint in `%s`",
                             directory),
                  "name the directory of a run that has taken one");
    if (found != CHECKPOINT_FOUND)
        return false;
    const struct checkpoint_info *info = checkpoint_info(newest);
    struct run_head *head = mem_calloc(1, sizeof(*head));
    *head = (struct run_head){.run = info->run, .epoch = info->id.epoch, .count = 1};
    head->parts[0] = (struct run_head_part){.id = info->id, .directory = str_from(directory)};
    bool is_good = checkpoint_digest(dir, info->id, head->parts[0].digest, &head->parts[0].bytes, diags);
    if (is_good)
        run_head_encode(head, out);
    free(head);
    checkpoint_close(newest);
    return is_good;
}

bool run_head_of_run(const char *directory, struct byte_buffer *out, struct diag_list *diags)
{
    struct checkpoint_dir_options options = {.path = directory, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, diags);
    bool is_good = dir != NULL && describe(dir, directory, out, diags);
    checkpoint_dir_close(dir);
    return is_good;
}
