#include "trial.h"

void suite_check(struct suite *suite)
{
    (void)suite;
}
