#include "learners/losses/options.h"

#define LOSS(kind, summary) extern const struct option losses_##kind##_options[];
#include "learners/losses/registry.def"
#undef LOSS

const struct kind_choice losses_choices[] = {
#define LOSS(kind, summary) {#kind, losses_##kind##_options, sizeof(struct losses_options), summary},
#include "learners/losses/registry.def"
#undef LOSS
    {0},
};

const struct losses_kind *losses_chosen(const struct kind_ref *ref)
{
    return losses_find(str_from(losses_choices[ref->choice].name));
}
