/* C++ libraries: operator new that gets nothing, and exceptions that nobody catches, which are of threads
 * that could not begin, mostly. */
#include "core/refused.h"

#include <exception>
#include <new>
#include <system_error>

namespace
{

void no_memory()
{
    refused_memory(0);
}

std::terminate_handler before;

void nobody_caught()
{
    if (std::exception_ptr thrown = std::current_exception()) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::bad_alloc &) {
            refused_memory(0);
        } catch (const std::system_error &error) {
            refused_other("a library a thread, or something else", error.what());
        } catch (...) {
        }
    }
    before(); /* not for want of anything: a bug, of leat's or a library's */
}

} // namespace

extern "C" void refused_init_cxx(void);
void refused_init_cxx(void)
{
    std::set_new_handler(no_memory);
    if (before == nullptr)
        before = std::set_terminate(nobody_caught);
}
