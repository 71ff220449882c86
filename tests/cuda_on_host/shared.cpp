/* Shared memory: a piece for each declaration of a block, filled with poison for each block. Pieces are
 * separate heap blocks, so that ASan sees their ends. Under TSan they are pages that are mapped anew for the
 * next block, so that accesses of different blocks are unrelated. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda_on_host/machine.h"
#include "tests/cuda_on_host/sanitizers.h"

void model_poison(void *memory, size_t bytes)
{
#ifndef MODEL_TSAN
    memset(memory, run.poison, bytes);
#else
    volatile uint64_t *words = (volatile uint64_t *)memory; /* volatile: no memset, which TSan would see */
    for (size_t i = 0; i < bytes / 8; i++) {
        words[i] = run.poison * 0x0101010101010101U;
    }
    for (size_t i = bytes / 8 * 8; i < bytes; i++) {
        ((volatile uint8_t *)memory)[i] = run.poison;
    }
#endif
}

#ifdef MODEL_TSAN
static void *renew(void *memory, size_t bytes, size_t)
{
    void *pages = mmap(memory, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | (memory != NULL ? MAP_FIXED : 0), -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

static void give_back(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}
#else
static void *renew(void *memory, size_t bytes, size_t align)
{
    return memory != NULL || posix_memalign(&memory, align, bytes) == 0 ? memory : NULL;
}

static void give_back(void *memory, size_t)
{
    free(memory);
}
#endif

static model_shared_piece *find_piece(model_block *block, const void *site)
{
    model_shared_piece *piece = block->shared;
    while (piece != NULL && piece->site != site) {
        piece = piece->next;
    }
    return piece;
}

static const char dynamic_site = 0;

static void check_size(const model_block *block)
{
    const model_launch_now *launch = scheduler_launch();
    size_t declared = 0;
    for (const model_shared_piece *piece = block->shared; piece != NULL; piece = piece->next) {
        declared += piece->site != &dynamic_site ? piece->bytes : 0;
    }
    if (declared + launch->shared_bytes > launch->shared_max) {
        model_report(scheduler_self(),
                     "%zu bytes of shared memory are declared and %zu launched, a block has %zu: a device "
                     "would not launch this",
                     declared, launch->shared_bytes, launch->shared_max);
    }
}

/* Done as the launcher's fiber, for TSan: otherwise the fill would belong to the first thread that comes
 * here, without order against the others. */
static void fill_piece(model_block *block, const void *site, size_t bytes, size_t align)
{
    const tsan_as launcher(scheduler_launcher());
    model_shared_piece *piece = find_piece(block, site);
    if (piece == NULL) {
        piece = (model_shared_piece *)calloc(1, sizeof(*piece));
        piece->site = site;
        piece->bytes = max(bytes, (size_t)1);
        piece->next = block->shared;
        block->shared = piece;
        check_size(block);
    }
    piece->memory = renew(piece->memory, piece->bytes, max(align, (size_t)16));
    if (piece->memory == NULL) {
        model_report(scheduler_self(), "no memory for %zu bytes of shared memory", bytes);
    }
    piece->filled_for = block->serial;
    model_poison(piece->memory, bytes);
    tsan_release(&piece->sync);
}

void *model_shared(const void *site, size_t bytes, size_t align)
{
    model_block *block = scheduler_self()->in;
    model_shared_piece *piece = find_piece(block, site);
    if (piece == NULL || piece->filled_for != block->serial) {
        fill_piece(block, site, bytes, align);
        piece = find_piece(block, site);
    }
    tsan_acquire(&piece->sync);
    return piece->memory;
}

void *model_shared_dynamic(void)
{
    return model_shared(&dynamic_site, scheduler_launch()->shared_bytes, 128);
}

void shared_free(model_block *block)
{
    while (block->shared != NULL) {
        model_shared_piece *piece = block->shared;
        block->shared = piece->next;
        give_back(piece->memory, piece->bytes);
        free(piece);
    }
}
